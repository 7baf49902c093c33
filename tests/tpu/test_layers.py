"""Which module of the model an operation belongs to is read off its stack, and never guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from xladoctor.tpu.layers import Layers

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """\
class Attention(nn.Module):
    def forward(self, x):
        return self.out(x @ x)  # row 3


class Block(nn.Module):
    def forward(self, x):
        return x + self.attention(self.norm(x))  # row 8: two modules are called

    def helper(self, x):
        return self.attention(x)  # row 11


class Net(nn.Module):
    def forward(self, x):
        for block in self.blocks:
            x = block(x)  # row 17
        return self.head(x)  # row 18


def loss(x):
    return x.sum()  # row 22
"""

CALL = ("/lib/site-packages/torch/nn/modules/module.py", 1786, "_call_impl")
WRAPPED = ("/lib/site-packages/torch/nn/modules/module.py", 1775, "_wrapped_call_impl")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


def stack(*frames: tuple[str, int, str]) -> tuple[tuple[str, int, str], ...]:
    """A stack from the outermost frame; each forward pass is called as torch calls it."""
    found = []
    for frame in frames:
        found += [WRAPPED, CALL, frame] if frame[2] == "forward" else [frame]
    return tuple(reversed(found))


def test_the_path_goes_from_the_model_to_the_innermost_module_of_the_program(model: str) -> None:
    frames = stack(
        ("/home/me/train.py", 40, "train"),
        (model, 17, "forward"), (model, 8, "forward"), (model, 3, "forward"),
    )  # fmt: skip
    assert Layers().path(frames) == ("Net", "Block", "Attention")


def test_the_attribute_is_told_where_a_row_calls_one_module(model: str) -> None:
    frames = stack((model, 18, "forward"), (model, 3, "forward"))
    assert Layers().path(frames) == ("Net.head", "Attention")


def test_decorators_and_helpers_stand_between_and_do_not_count(model: str) -> None:
    frames = tuple(
        reversed(
            [WRAPPED, CALL, ("/lib/site-packages/decorators.py", 5, "wrapper"),
             (model, 8, "forward"), (model, 11, "helper"),
             WRAPPED, CALL, (model, 3, "forward")]
        )
    )  # fmt: skip
    assert Layers().path(frames) == ("Block", "Attention")


def test_modules_of_torch_count_only_where_there_are_no_others(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "nn" / "modules"
    folder.mkdir(parents=True)
    (folder / "linear.py").write_text(
        "class Linear(Module):\n    def forward(self, x):\n        x\n"
    )
    linear = (str(folder / "linear.py"), 3, "forward")
    assert Layers().path(stack((model, 18, "forward"), linear)) == ("Net",)
    assert Layers().path(stack(linear)) == ("Linear",)


def test_what_an_optimizer_of_torch_does_is_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "optim"
    folder.mkdir(parents=True)
    (folder / "sgd.py").write_text("class SGD(Optimizer):\n    def step(self):\n        pass\n")
    frames = stack(("/home/me/train.py", 44, "train"), (str(folder / "sgd.py"), 3, "step"))
    assert Layers().path(frames) == ("optimizer SGD",)


def test_what_is_of_no_module_or_not_known_is_nothing(model: str) -> None:
    layers = Layers()
    assert layers.path(()) == ()
    assert layers.path(stack((model, 22, "loss"))) == ()
    assert layers.path(stack(("/gone/model.py", 17, "forward"))) == ()


@pytest.mark.parametrize("text", ["def (", "\x00", "x = 1\n"])
def test_a_file_that_has_changed_or_is_no_python_costs_only_the_name(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(text)
    assert Layers().path(stack((str(path), 17, "forward"))) == ()
