"""XLA423: the cores meet on the host in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop, Problem

_XM = "torch_xla.core.xla_model."
_MEETS = frozenset({f"{_XM}mesh_reduce", f"{_XM}rendezvous"})
#: Methods of frameworks' objects in which the cores meet, and the classes of these.
_METHODS = {
    "wait_for_everyone": "accelerate.Accelerator",
    "barrier": "lightning.fabric.Fabric",
    "all_reduce": "lightning.fabric.Fabric",
}
#: What these are on XLA devices (Lightning 2.6, fabric/strategies/xla.py; Accelerate 1.15).
_IS = {"all_reduce": "mesh_reduce"}
_EACH = {LoopKind.STEP: "in every step", LoopKind.EVAL: "for every evaluation batch"}


@rule("XLA423")
def collective_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ``mesh_reduce`` and ``rendezvous`` in step and evaluation loops."""
    for call in model.calls():
        what = _meeting(model, call)
        if what is None:
            continue
        loop = costly_loop(model, call.node) or _over_batches(model, call)
        if loop is None:
            loop = _in_closure(model, call)
        if loop is None or _sometimes(model, call, loop):
            continue
        each = _EACH.get(loop.kind, "for every batch")
        yield model.problem(
            call.node,
            what + each,
            suggestion="xm.all_reduce(xm.REDUCE_SUM, tensor) stays in the graph; or reduce once "
            "after the loop"
            if call.name is not None
            else "leave it out of the loop: a step needs no meeting, and what the cores have to "
            "know of one another can be gathered once, after the loop",
            related=[loop_place(model, loop)],
        )


def _meeting(model: FileModel, call: CallSite) -> str | None:
    """What a call of the cores' meeting on the host does; None if it is none."""
    if call.name in _MEETS:
        name = call.name.rpartition(".")[2]
        return f"xm.{name} ends the graph, gathers pickled data of all cores and reads it here, "
    if (
        call.name is None
        and call.method in _METHODS
        and _METHODS[call.method] == _class(model, call)
    ):
        meets = _IS.get(call.method, "rendezvous")
        return f"{call.method} is xm.{meets} on XLA devices: all cores meet on the host here, "
    return None


def _class(model: FileModel, call: CallSite) -> str | None:
    return None if call.receiver is None else model.value(call.receiver).type_name


def _over_batches(model: FileModel, call: CallSite) -> Loop | None:
    """A loop over a device loader whose body trains elsewhere: ``metrics = train_step(x, y)``."""
    loop = model.loop(call.node)
    return loop if loop is not None and loop.iterates.kind is Kind.DEVICE_LOADER else None


def _in_closure(model: FileModel, call: CallSite) -> Loop | None:
    """The loop on whose every step a step closure is added in which the cores meet."""
    function = call.function
    for added in model.closure_calls(function) if function is not None else ():
        loop = costly_loop(model, added.node)
        if loop is not None and not _sometimes(model, added, loop):
            return loop
    return None


def _decides(model: FileModel, guard: Guard) -> bool:
    """Not ``if self.use_tpu:``, which is always so here, nor ``while True:`` around the steps.

    Nor what ``if step % 500 == 0:`` leaves to its ``else``: nearly all steps.
    """
    if guard.runs is OnXla.YES or isinstance(guard.node, cst.While):
        return False
    if guard.when or not isinstance(guard.node, cst.If):
        return True
    return not model.throttled(guard.node.body.body[0])


def _sometimes(model: FileModel, call: CallSite, loop: Loop, depth: int = 3) -> bool:
    """Whether a condition within the loop may make the call rare, also around its callers."""
    if any(
        loop.function is not call.function or loop.node in model.tree.ancestors(guard.node)
        for guard in model.guards(call.node)
        if _decides(model, guard)
    ):
        return True
    function = call.function
    if function is None or function is loop.function or depth == 0:
        return False
    callers = [one for one in model.callers(function) if model.hot_loop(one.node) is not None]
    return bool(callers) and all(_sometimes(model, one, loop, depth - 1) for one in callers)
