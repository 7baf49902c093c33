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

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA304")
def redundant_barrier(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.optimizer_step(..., barrier=True)`` directly in a loop over a device loader."""
    for call in model.calls(OPTIMIZER_STEP):
        value = given_true(model, call, "barrier")
        loop = model.loop(call.node)
        if value is None or loop is None or loop.iterates.kind is not Kind.DEVICE_LOADER:
            continue
        if not loop.iterates.certain:
            continue
        yield model.problem(
            value,
            "the device loader of this loop ends the graph of each step already: a second end "
            "launches nothing and makes the host wait for step closures",
            suggestion="leave barrier out",
            related=[loop_place(model, loop)],
            fix=model.fix("Remove barrier", model.remove_argument(call.node, value), safe=False),
        )
