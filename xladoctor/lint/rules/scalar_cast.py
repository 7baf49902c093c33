"""XLA102: ``float()``, ``int()`` or ``bool()`` of a device tensor in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._accumulate import accumulate_fix
from xladoctor.lint.rules._kept import kept_fix
from xladoctor.lint.rules._meters import meter_fix
from xladoctor.lint.rules._reads import accumulate_advice, costly_loop, read_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_CASTS = ("float", "int", "bool", "complex", "range")


@rule("XLA102")
def scalar_cast_in_step(model: FileModel) -> Iterator[Problem]:
    """Find casts of a device tensor to a Python number in hot loops."""
    for call in model.calls(*(f"builtins.{name}" for name in _CASTS), "math.*"):
        tensor = next(
            (arg for arg in call.positional if model.value(arg).is_device_tensor),
            None,
        )
        if tensor is None:
            continue
        loop = costly_loop(model, call.node)
        if loop is None:
            continue
        assert call.name is not None
        spelled = call.name.removeprefix("builtins.")
        advice = accumulate_advice(loop)
        if spelled.startswith("math."):
            advice = f"use torch.{spelled.removeprefix('math.')}, which stays on the device"
        elif spelled == "range":
            advice = (
                "take the length from a shape: a length read from the device is also a new "
                "graph for each value"
            )
        plain = spelled in {"float", "int"} and len(call.node.args) == 1
        fix = (
            accumulate_fix(model, call.node, tensor, loop, spelled)
            or (meter_fix(model, call.node, tensor, loop) if spelled == "float" else None)
            or kept_fix(model, call.node, tensor, loop, spelled)
            if plain
            else None
        )
        yield read_problem(model, call.node, tensor, loop, f"`{spelled}()` reads", advice, fix)
