"""One core is given the batches that several have read, whoever makes the loaders and when."""

from __future__ import annotations

import collections
import sys

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from xladoctor.capture.agent import optimizers  # noqa: E402
from xladoctor.capture.verify import state  # noqa: E402
from xladoctor.capture.verify.feeding import Feeding  # noqa: E402
from xladoctor.capture.verify.settings import Settings  # noqa: E402

WHOLE = TensorDataset(torch.arange(12.0).reshape(12, 1))


@pytest.fixture
def ways(tmp_path, monkeypatch):
    """A feeding for two cores that records, and one for a single core that is given theirs."""
    monkeypatch.setattr(state, "main", state.Core())
    yield (
        Feeding(Settings("xla-2", str(tmp_path), 9), pytest.fail),
        Feeding(Settings("xla", str(tmp_path / "one"), 9, source=str(tmp_path), cores=2), print),
    )
    state.enter(None)


def _record(feeding, loader_of):
    for number in range(2):
        state.enter(state.Core(number))
        for _ in feeding._iterate(loader_of(number), DataLoader.__iter__):
            pass
    state.enter(None)


def _share(number, batch=2):
    return DataLoader(WHOLE, batch, sampler=range(number, 12, 2))


def test_loaders_that_are_made_anew_on_several_cores_are_known_again(ways):
    """Lightning makes a loader with a sampler on several cores, and none on one."""
    many, one = ways

    def remade(number):
        DataLoader(WHOLE, 2)  # the program's own, in whose place the other stands
        return _share(number)

    _record(many, remade)
    mine = DataLoader(WHOLE, 2)
    assert one._length(mine, lambda _: 0) == 3  # as many as each core had, before it has begun
    batches = [part.flatten().tolist() for (part,) in one._iterate(mine, DataLoader.__iter__)]
    assert batches == [[0, 2, 1, 3], [4, 6, 5, 7], [8, 10, 9, 11]]
    assert one._length(mine, lambda _: 0) == 3


def test_a_loader_inside_of_a_loader_is_not_recorded(ways):
    """Its samples are already in the batches of the outer one; the next loader keeps its number."""
    many, one = ways

    class Outer(torch.utils.data.IterableDataset):
        def __init__(self, feeding, loader):
            self.feeding, self.loader = feeding, loader

        def __iter__(self):
            for (part,) in self.feeding._iterate(self.loader, DataLoader.__iter__):
                yield from part + 100

    def both(feeding, number):
        outer = DataLoader(Outer(feeding, _share(number)), 3)
        first = [one.flatten().tolist() for one in feeding._iterate(outer, DataLoader.__iter__)]
        second = feeding._iterate(_share(number, 6), DataLoader.__iter__)
        return first, [part.flatten().tolist() for (part,) in second]

    for number in range(2):
        state.enter(state.Core(number))
        both(many, number)
    state.enter(None)
    first, second = both(one, 0)
    assert first == [[100, 102, 104, 101, 103, 105], [106, 108, 110, 107, 109, 111]]
    assert second == [[0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]]


def test_a_loader_that_only_one_way_has_gives_its_own_batches(ways):
    _, one = ways
    loader = DataLoader(WHOLE, 6)
    assert one._length(loader, lambda _: 2) == 2
    assert len(list(one._iterate(loader, DataLoader.__iter__))) == 2


@pytest.mark.parametrize("how", ["plain", "positional", "named", "twice"])
def test_gradients_are_looked_at_when_they_are_there(how, monkeypatch):
    module = sys.modules["torch.optim.optimizer"]
    monkeypatch.setattr(module, "_global_optimizer_pre_hooks", collections.OrderedDict())
    weight = torch.nn.Parameter(torch.ones(1))
    kind = torch.optim.LBFGS if how == "twice" else torch.optim.SGD
    optimizer = kind([weight], lr=0.1)
    seen = []
    optimizers.before_step(
        lambda one, *_: seen.append(one.param_groups[0]["params"][0].grad.item())
    )

    def closure():
        optimizer.zero_grad()
        loss = (3 * weight).sum() ** 2
        loss.backward()
        return loss

    if how == "plain":
        closure()
        optimizer.step()
    elif how == "named":
        optimizer.step(closure=closure)
    else:
        optimizer.step(closure)
    assert seen == [18.0], "once, after the first backward pass of a step"
