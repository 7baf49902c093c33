"""XLA102: ``float()``, ``int()`` or ``bool()`` of a device tensor in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.events import How
from xladoctor.lint.library import Effect
from xladoctor.lint.rewrites.accumulate import accumulate_fix
from xladoctor.lint.rewrites.kept import kept_fix
from xladoctor.lint.rewrites.meters import meter_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import accumulate_advice, read_problem, waiting_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA102")
def scalar_cast_in_step(model: FileModel) -> Iterator[Problem]:
    """Find casts of a device tensor to a Python number in hot loops."""
    for event in model.effects.of(Effect.READ):
        call, tensor = event.call, event.value
        loop = waiting_loop(model, event.node) if event.how is How.CAST else None
        if loop is None or call is None or tensor is None or call.name is None:
            continue
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
