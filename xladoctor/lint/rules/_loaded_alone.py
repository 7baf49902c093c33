"""Weights, and states of optimizers, that the master core alone loads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.knowledge import MODEL_NAME
from xladoctor.lint.rules._cores import entry_places
from xladoctor.lint.rules._equal import sometimes
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

#: What makes the weights of all cores those of the master.
SENDS = "xm.broadcast_master_param(model) after the move to the device, on all cores"
#: Calls that send what the master has to the others.
_SENT = re.compile(r"broadcast|sync_module|DistributedDataParallel|FullySharded")
_MASTER_PARAM = "torch_xla.core.xla_model.broadcast_master_param"
_PARAMETERS = re.compile(r"\.(parameters|buffers|named_parameters|named_buffers)\(")
#: Words of functions that load weights into what they are given.
_LOADS = frozenset({"load", "restore"})
_WEIGHTS = frozenset({"checkpoint", "ckpt", "weights", "pretrained", "state", "model", "params"})
#: Words of what has a state that its steps depend on.
_STEPPERS = frozenset({"optimizer", "optim", "scheduler"})


def loaded_alone(model: FileModel) -> Iterator[tuple[bool, Problem]]:
    """``if xm.is_master_ordinal(): model.load_state_dict(...)`` before the training, for good.

    Also ``load_checkpoint(model, path)`` of a function that nobody has read, and the state of the
    optimizer or scheduler. And whether weights are loaded on every run, not only on one that goes
    on from a checkpoint.
    """
    loading = [(call, net) for call in model.calls() if (net := _loaded(model, call)) is not None]
    if not loading:
        return
    sending = [call for call in model.calls() if _sends(model, call)]
    if not all(_of_weights(model, call) for call in sending):
        return
    for call, net in loading:
        if sending and not _steps(model, net):
            continue  # ``broadcast_master_param(model)`` sends no state of the optimizer
        guard = model.master_only(call.node)
        entry = model.on_every_core(call.node)
        if guard is None or entry is None:
            continue
        of_net = _is_net(model, net)
        if not (of_net or _steps(model, net)) or not _trained_after(model, call, guard):
            continue
        problem = model.problem(
            _under(model, call, guard),
            "only the master core loads these weights: the others start from what they have, and "
            "gradients are averaged, weights never"
            if of_net
            else "only the master core loads this state: it steps in another way than the others, "
            "and the models drift apart, since gradients alone are averaged",
            suggestion=f"load them on all cores, or {SENDS}" if of_net else "load it on all cores",
            related=[
                model.place(guard.written, "the master core alone"),
                *entry_places(model, entry),
            ],
        )
        sure = of_net and _is_sure(guard) and not sometimes(model, call, besides=guard)
        yield sure, problem


def _under(model: FileModel, call: CallSite, guard: Guard, depth: int = 3) -> cst.Call:
    """The call under a condition that is this one, or runs it: ``if master: restore(net)``."""
    if depth and call.function is not None and call.function is not model.function_of(guard.node):
        for caller in model.callers(call.function):
            found = _under(model, caller, guard, depth - 1)
            if model.is_here(found) and any(one.node is guard.node for one in model.guards(found)):
                return found
    return call.node


def _is_net(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a model, or an object of another file's class that is called one, is meant."""
    kind = model.value(node).kind
    named = last_name(node).lower()
    return kind is Kind.MODEL or (kind is Kind.OBJECT and bool(MODEL_NAME.search(named)))


def _steps(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an optimizer is meant, or a scheduler, by what made it or by its name."""
    kind = model.value(node).kind
    named = words(last_name(node)) & _STEPPERS
    return kind in {Kind.OPTIMIZER, Kind.SCHEDULER} or (kind is Kind.UNKNOWN and bool(named))


def _is_sure(guard: Guard) -> bool:
    """``if is_master:`` alone, not ``if is_master and os.path.isfile(path):``."""
    return not isinstance(guard.test, cst.BooleanOperation)


def _sends(model: FileModel, call: CallSite) -> bool:
    text = model.tree.text(call.node)
    return _SENT.search(model.tree.text(call.node.func)) is not None or (
        "all_reduce" in text and "param" in text
    )


def _of_weights(model: FileModel, call: CallSite) -> bool:
    """``xm.broadcast_master_param(net)``, or one for each of ``net.parameters()``."""
    if call.name == _MASTER_PARAM:
        return True
    loop = model.loop(call.node)
    over = loop.over if loop is not None else None
    return over is not None and _PARAMETERS.search(model.tree.text(over)) is not None


def _trained_after(model: FileModel, call: CallSite, guard: Guard, depth: int = 2) -> bool:
    """Whether the training follows, and not under the same condition."""
    callers = model.callers(call.function) if call.function is not None and depth else ()
    if any(_trained_after(model, caller, guard, depth - 1) for caller in callers):
        return True
    return any(
        loop.kind in {LoopKind.STEP, LoopKind.EPOCH}
        and loop.function is call.function
        and in_order(model, call.node, loop.node)
        and not any(around.node is guard.node for around in model.guards(loop.node))
        for loop in model.loops
    )


def _loaded(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """What a call loads weights into: the model of ``model.load_state_dict(state)``."""
    if call.method == "load_state_dict":
        return call.receiver
    if call.name is not None or call.receiver is not None:
        return None
    said = words(call.written)
    if not said & _LOADS or not said & _WEIGHTS or call.target is not None:
        return None
    return next((one for one in call.positional if model.value(one).kind is Kind.MODEL), None)
