"""XLA423: the cores meet on the host in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, OnXla, walk
from xladoctor.lint.model.conditions import asked_for_none
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rewrites.lightning import is_module
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._handed_over import extends_trainer, is_accelerator
from xladoctor.lint.rules._lightning_hooks import logs
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop, Problem

_XM = "torch_xla.core.xla_model."
_MEETS = {
    f"{_XM}mesh_reduce": "ends the graph, gathers pickled data of all cores and reads it here",
    f"{_XM}rendezvous": "ends the graph, gathers pickled data of all cores and reads it here",
    f"{_XM}do_on_ordinals": "copies its data to the host, and makes all cores wait for each other",
}
#: Methods of frameworks' objects in which the cores meet, and the classes of these.
_METHODS = {
    "wait_for_everyone": "accelerate.Accelerator",
    "barrier": "lightning.fabric.Fabric",
    "all_reduce": "lightning.fabric.Fabric",
}
#: A Trainer's own, which the evaluation loops of copies call for each batch (transformers 4).
_GATHERS = "_nested_gather"
#: What these are on XLA devices (Lightning 2.6, fabric/strategies/xla.py; Accelerate 1.15).
_IS = {"all_reduce": "mesh_reduce"}
#: Accelerate's, which end the graph behind ``xm.all_gather`` (0.20 to 1.15, utils/operations.py).
_ENDS = ("gather", "gather_for_metrics")
_TRAINS = "training_step"
#: Methods of a LightningModule that run for each batch.
_LOGGED = {
    _TRAINS: "in every step",
    "validation_step": "for every evaluation batch",
    "test_step": "for every evaluation batch",
}
_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_EACH = {LoopKind.STEP: "in every step", LoopKind.EVAL: "for every evaluation batch"}


@rule("XLA423")
def collective_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ``mesh_reduce`` and ``rendezvous`` in step and evaluation loops."""
    if model.is_xla and "lightning" in model.frameworks:
        yield from _logged(model)
    if model.is_xla and "accelerate" in model.frameworks:
        yield from _losses(model)
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
            else "move it out of the loop: a step needs no rendezvous, and what the cores need "
            "from each other can be gathered once, after the loop",
            related=[loop_place(model, loop)],
        )


def _logged(model: FileModel) -> Iterator[Problem]:
    """``self.log("loss", loss, sync_dist=True)`` of a step's own value, which is reduced there.

    Known from Lightning 2.6: ``_ResultMetric.update`` reduces what is logged on each step, and the
    strategies for XLA do that by ``xm.mesh_reduce``.
    """
    if any(_on_one_core(part) for part in (model, *model.linked)):
        return
    for call, function, _ in logs(model):
        each = _LOGGED.get(function.name)
        if each is None or not is_module(model, function):
            continue
        on_step = given(model, call).get("on_step")
        always = model.literal(on_step) is True if on_step is not None else function.name == _TRAINS
        if not always or given_true(model, call, "sync_dist") is None:
            continue
        if model.throttled(call.node) or _is_metric(model, call):
            continue
        yield model.problem(
            call.node,
            "with sync_dist=True Lightning reduces this on the host with xm.mesh_reduce, for "
            f"which all cores wait for each other {each}",
            suggestion=(
                "on_step=False, on_epoch=True: the cores then wait for each other once per epoch"
            ),
        )


def _losses(model: FileModel) -> Iterator[Problem]:
    """``accelerator.gather(loss)`` of each step: what is differentiated is the core's own loss."""
    for call in model.methods(*_ENDS):
        loop = costly_loop(model, call.node) if is_accelerator(model, call) else None
        if loop is None or loop.kind is not LoopKind.STEP or _sometimes(model, call, loop):
            continue
        if _is_differentiated(model, call) and not _is_read_there(model, call):
            yield model.problem(
                call.node,
                f"{call.method} brings the losses of all cores together and ends the graph (it "
                "calls xm.mark_step) in every step, for a number that only the log needs",
                suggestion="add up loss.detach(), and gather the sum where it is logged",
                related=[loop_place(model, loop)],
            )


def _is_differentiated(model: FileModel, call: CallSite) -> bool:
    """Whether what is gathered is a loss whose backward pass the same function takes."""
    given = call.positional[0] if call.positional else call.node
    names = {part.value for part in walk(given) if isinstance(part, cst.Name)}
    return any(
        isinstance(of := other.positional[0] if other.positional else other.receiver, cst.Name)
        and of.value in names
        for other in model.methods("backward")
        if other.function is call.function
    )


def _is_read_there(model: FileModel, call: CallSite) -> bool:
    """``accelerator.gather(loss).mean().item()``: the read says it all (XLA101)."""
    outer = model.parent(call.node)
    while isinstance(outer, cst.Attribute | cst.Call):
        if isinstance(outer, cst.Attribute) and outer.attr.value in _READS:
            return True
        outer = model.parent(outer)
    return False


def _is_metric(model: FileModel, call: CallSite) -> bool:
    """``self.log("acc", self.accuracy)``: metrics of torchmetrics bring themselves together."""
    value = call.argument(1, "value")
    if value is None:
        return False
    known = model.value(value)
    kept = isinstance(value, cst.Attribute) and not known.is_device_tensor
    return kept or (known.type_name or "").startswith("torchmetrics")


def _on_one_core(model: FileModel) -> bool:
    """Whether a Trainer of a file is made for one device."""
    for call in model.calls("lightning.pytorch.Trainer"):
        settings = given(model, call)
        devices = settings.get("devices", settings.get("tpu_cores"))
        if devices is not None and constant(model, devices) in (1, "1"):
            return True
    return False


def _meeting(model: FileModel, call: CallSite) -> str | None:
    """What a call of the cores' meeting on the host does; None if it is none."""
    if call.name in _MEETS:
        name = call.name.rpartition(".")[2]
        return f"xm.{name} {_MEETS[call.name]}, "
    if (
        call.name is None
        and call.method in _METHODS
        and _METHODS[call.method] == _class(model, call)
    ):
        meets = _IS.get(call.method, "rendezvous")
        return f"{call.method} is xm.{meets} on XLA devices: all cores meet on the host here, "
    if call.name is None and call.method == _GATHERS and _of_trainer(model, call):
        return f"{_GATHERS} is xm.mesh_reduce on XLA devices: all cores meet on the host here, "
    return None


def _of_trainer(model: FileModel, call: CallSite) -> bool:
    """``self._nested_gather(loss)`` in a class on the Trainer of transformers."""
    if call.function is None or call.target is not None or not is_name(call.receiver, "self"):
        return False
    return extends_trainer(model, call.function.owner)


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

    Nor what ``if step % 500 == 0:`` leaves to its other branch: nearly all steps.
    """
    if guard.runs is OnXla.YES or isinstance(guard.node, cst.While) or model.holds_step(guard):
        return False
    if guard.when and (_has_begun(guard.test) or _is_there(model, guard.test)):
        return False
    if not isinstance(guard.node, cst.If):
        return True
    other = guard.node.orelse if guard.inside else guard.node
    lines = other.body.body if isinstance(other, cst.If | cst.Else) else ()
    return not lines or not model.throttled(lines[0])


def _is_there(model: FileModel, test: cst.BaseExpression) -> bool:
    """``if loss is not None:`` of what is a tensor in each turn."""
    asked = asked_for_none(test)
    return asked is not None and not asked[1] and model.value(asked[0]).holds_device_tensor


def _has_begun(test: cst.BaseExpression) -> bool:
    """``if step > 0:``, ``if count >= 1:``: all turns but the first."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    against = test.comparisons[0]
    least = against.comparator.value if isinstance(against.comparator, cst.Integer) else ""
    return isinstance(test.left, cst.Name) and (
        (isinstance(against.operator, cst.GreaterThan) and least == "0")
        or (isinstance(against.operator, cst.GreaterThanEqual) and least == "1")
    )


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
