"""XLA104: Python decides on the value of a device tensor in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._asked import asked_tensors, takes_out
from xladoctor.lint.rules._reads import read_problem, waiting_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_ADVICE = (
    "choose on the device: torch.where(condition, a, b); "
    "to check for NaN, look every 100 steps in a step closure"
)
_BUILTINS = ("any", "all", "max", "min", "sorted")


@rule("XLA104")
def tensor_in_condition(model: FileModel) -> Iterator[Problem]:
    """Find device tensors whose truth Python asks for in hot loops."""
    for word, tensor in asked_tensors(model):
        loop = waiting_loop(model, tensor)
        if loop is not None:
            yield read_problem(model, tensor, tensor, loop, f"`{word}` reads", _ADVICE)
    yield from _builtins(model)


def _builtins(model: FileModel) -> Iterator[Problem]:
    """``max(a, b)`` compares with ``if`` inside."""
    for call in model.calls(*(f"builtins.{name}" for name in _BUILTINS)):
        given = (arg for arg in call.positional if not takes_out(model, arg))
        tensor = next((arg for arg in given if model.value(arg).holds_device_tensor), None)
        loop = waiting_loop(model, call.node) if tensor is not None else None
        if tensor is None or loop is None:
            continue
        assert call.name is not None
        spelled = call.name.removeprefix("builtins.")
        advice = _ADVICE
        if spelled in {"max", "min"}:
            advice = f"use torch.{spelled}imum(a, b), which stays on the device"
        yield read_problem(model, call.node, tensor, loop, f"`{spelled}()` reads", advice)
