"""XLA304: ``barrier=True`` where the loader ends the graph already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._reads import loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


@rule("XLA304")
def redundant_barrier(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.optimizer_step(..., barrier=True)`` for each batch of a device loader."""
    for call in model.calls(OPTIMIZER_STEP):
        value = given_true(model, call, "barrier")
        loops = _loops(model, call) if value is not None else []
        if value is None or not loops or not all(map(_ends_steps, loops)):
            continue
        yield model.problem(
            value,
            "the device loader of this loop ends the graph of each step already: a second end "
            "launches nothing and makes the host wait for step closures",
            suggestion="leave barrier out",
            related=[loop_place(model, loops[0])],
            fix=model.fix("Remove barrier", model.remove_argument(call.node, value), safe=False),
        )


def _ends_steps(loop: Loop) -> bool:
    return loop.iterates.kind is Kind.DEVICE_LOADER and loop.iterates.certain


def _loops(model: FileModel, call: CallSite, depth: int = 3) -> list[Loop]:
    """The innermost loops that run a call: here, or those of all callers of its function."""
    loop = model.loop(call.node)
    if loop is not None:
        return [loop]
    if call.function is None or not depth:
        return []
    found = [_loops(model, caller, depth - 1) for caller in model.callers(call.function)]
    return [loop for loops in found for loop in loops] if all(found) else []
