"""XLA423: the cores meet on the host in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_XM = "torch_xla.core.xla_model."


@rule("XLA423")
def collective_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ``mesh_reduce`` and ``rendezvous`` in step loops."""
    for call in model.calls(f"{_XM}mesh_reduce", f"{_XM}rendezvous"):
        loop = costly_loop(model, call.node)
        if loop is None or loop.kind is not LoopKind.STEP:
            continue
        outside = {guard.node for guard in model.guards(loop.node)}
        if any(guard.node not in outside for guard in model.guards(call.node)):
            continue
        name = (call.name or "").rpartition(".")[2]
        yield model.problem(
            call.node,
            f"xm.{name} ends the graph, gathers pickled data of all cores and reads it here, "
            "in every step",
            suggestion="xm.all_reduce(xm.REDUCE_SUM, tensor) stays in the graph; or reduce once "
            "after the loop",
            related=[loop_place(model, loop)],
        )
