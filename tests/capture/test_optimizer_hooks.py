"""A step of an optimizer is one step, however many classes its ``step`` comes by."""

from __future__ import annotations

import threading
import time

import pytest

from xladoctor.capture.agent import optimizers
from xladoctor.capture.simulate import frameworks

torch = pytest.importorskip("torch")
from torch.optim.optimizer import (  # noqa: E402
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


class Plain(torch.optim.SGD):
    pass


class CallsItsBase(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


class WrappedTwice(torch.optim.SGD):
    """What is left when two threads have made the first optimizers of a class at once."""

    step = Optimizer.profile_hook_step(torch.optim.SGD.step)


class Fails(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        if self.param_groups[0]["lr"] > 1:
            raise ValueError("too fast")


@pytest.fixture
def told():
    """The hooks that were called: by torch itself, and once for a step."""
    rows: list[str] = []
    handles = [
        register_optimizer_step_pre_hook(lambda *_: rows.append("torch")),
        register_optimizer_step_pre_hook(optimizers._once(lambda *_: rows.append("before"))),
        register_optimizer_step_post_hook(optimizers._once(lambda *_: rows.append("after"))),
    ]
    yield rows
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize(
    ("made", "by_torch"), [(Plain, 1), (CallsItsBase, 2), (WrappedTwice, 2), (Fails, 2)]
)
def test_hooks_are_called_once_for_each_step(told, made, by_torch):
    optimizer = made([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    for steps in (1, 2):
        optimizer.step()
        assert told.count("torch") == steps * by_torch
        assert [one for one in told if one != "torch"] == ["before", "after"] * steps
    other.step()
    assert told.count("after") == 3


def test_a_step_that_raises_is_over(told):
    optimizer = Fails([torch.nn.Parameter(torch.ones(2))], lr=2.0)
    with pytest.raises(ValueError, match="too fast"):
        optimizer.step()
    assert "after" not in told
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert told.count("before") == 2
    assert told.count("after") == 1


def test_an_optimizer_inside_another_one_steps_for_itself(told):
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            inner.step()

    inner = Plain([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    Outer([torch.nn.Parameter(torch.ones(2))], lr=0.1).step()
    assert [one for one in told if one != "torch"] == ["before", "before", "after", "after"]


def test_cores_make_their_optimizers_one_after_the_other(monkeypatch):
    inside, most = [], []

    def slow(optimizer):
        inside.append(optimizer)
        most.append(len(inside))
        time.sleep(0.01)
        inside.remove(optimizer)

    monkeypatch.setattr(Optimizer, "_patch_step_function", slow)
    frameworks._wrap_optimizers_once()
    together = threading.Barrier(4)

    def core():
        together.wait()
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)

    threads = [threading.Thread(target=core) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4
