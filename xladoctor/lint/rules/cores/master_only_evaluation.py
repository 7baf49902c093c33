"""XLA418: the master core evaluates alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA418")
def master_only_evaluation(model: FileModel) -> Iterator[Problem]:
    """Find evaluation loops that only the master core gets to."""
    if not model.is_xla or model.spmd or model.frameworks:
        return
    reported = set()
    for loop in model.loops:
        guard = model.master_only(loop.node) if loop.kind is LoopKind.EVAL else None
        if guard is None or loop.implicit or guard.node in reported:
            continue
        reported.add(guard.node)
        yield model.problem(
            guard.test,
            "only the master core evaluates: the others wait at their next collective, and with a "
            "sharded loader the master sees its own part of the data only",
            suggestion="evaluate on all cores and add up the counts with xm.all_reduce or "
            "xm.mesh_reduce",
            related=[model.place(loop.node, "the evaluation loop")],
        )
