"""XLA423: the cores meet on the host in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind, LoopKind, OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_XM = "torch_xla.core.xla_model."
_EACH = {LoopKind.STEP: "in every step", LoopKind.EVAL: "for every evaluation batch"}


@rule("XLA423")
def collective_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ``mesh_reduce`` and ``rendezvous`` in step and evaluation loops."""
    for call in model.calls(f"{_XM}mesh_reduce", f"{_XM}rendezvous"):
        loop = costly_loop(model, call.node) or _over_batches(model, call)
        if loop is None:
            loop = _in_closure(model, call)
        if loop is None or _sometimes(model, call, loop):
            continue
        each = _EACH.get(loop.kind, "for every batch")
        name = (call.name or "").rpartition(".")[2]
        yield model.problem(
            call.node,
            f"xm.{name} ends the graph, gathers pickled data of all cores and reads it here, "
            + each,
            suggestion="xm.all_reduce(xm.REDUCE_SUM, tensor) stays in the graph; or reduce once "
            "after the loop",
            related=[loop_place(model, loop)],
        )


def _over_batches(model: FileModel, call: CallSite) -> Loop | None:
    """A loop over a device loader whose body trains elsewhere: ``metrics = train_step(x, y)``."""
    loop = model.loop(call.node)
    return loop if loop is not None and loop.iterates.kind is Kind.DEVICE_LOADER else None


def _in_closure(model: FileModel, call: CallSite) -> Loop | None:
    """The loop on whose every step a step closure is added in which the cores meet."""
    function = call.function
    added = model.closure_calls(function) if function is not None else ()
    loops = (costly_loop(model, one.node) for one in added if not _guarded(model, one))
    return next((loop for loop in loops if loop is not None), None)


def _guarded(model: FileModel, call: CallSite) -> bool:
    """Whether a condition decides whether a call is made; ``if use_tpu:`` is always so here."""
    return any(guard.runs is not OnXla.YES for guard in model.guards(call.node))


def _sometimes(model: FileModel, call: CallSite, loop: Loop) -> bool:
    """Whether a condition within the loop may make the call rare."""
    return any(
        loop.function is not call.function or loop.node in model.tree.ancestors(guard.node)
        for guard in model.guards(call.node)
        if guard.runs is not OnXla.YES  # ``if self.use_tpu:`` is always so here
    )
