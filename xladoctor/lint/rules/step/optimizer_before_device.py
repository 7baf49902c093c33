"""XLA305: the optimizer is made before the model is moved, and keeps the old parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, OnXla
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order, same_name
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._lightning_hooks import is_lightning
from xladoctor.lint.rules._moved_later import moved_later
from xladoctor.lint.rules._object_runs import FSDP
from xladoctor.lint.rules._optimized import moves_of, owners
from xladoctor.lint.rules._protocol import makes_optimizer, takes_step
from xladoctor.lint.rules._reads import loop_place, not_here

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Functions that hand a model on to one another.
_DEPTH = 3


@rule("XLA305")
def optimizer_before_device(model: FileModel) -> Iterator[Problem]:
    """Find optimizers of a model that the same function moves to the device afterwards."""
    if not model.is_xla:
        return
    makers = model.once(_makers)
    if model.led_by:
        yield from _in_lightning(model)
        yield from _under_accelerate(model, makers)
        if "lightning" not in model.led_by:
            yield from _moved_away(model, makers)
        return
    told = set()
    for maker in makers:
        for owner, taken in owners(model, maker):
            move = _moved_after(model, maker, owner, taken) or _handed_on(
                model, makers, maker, owner
            )
            wrap = None if move is not None else _wrapped_after(model, maker, owner, taken)
            after = move or wrap
            if after is None or _made_again(model, makers, maker, owner, after):
                continue
            told.add(maker.node)
            yield model.problem(
                maker.node,
                (
                    "the move to the XLA device replaces the model's parameters: this optimizer "
                    "keeps the old ones, and its steps change nothing"
                    if wrap is None
                    else "FSDP replaces the model's parameters by shards of them: this optimizer "
                    "keeps the old ones, and its steps change nothing"
                ),
                suggestion=f"{'wrap' if wrap else 'move'} the model first, then make the optimizer",
                related=[
                    model.place(after.node, f"{'wrapped' if wrap else 'moved'} here, afterwards")
                ],
            )
            break
    yield from _moved_away(model, makers)
    anywhere = any(part.once(_makers) for part in (model, *model.linked))
    later = [*moved_later(model)] if anywhere else []
    yield from _given_together(model, {move.node for _, move in later})
    for maker, move in later:
        if maker.node not in told and model.is_here(maker.node):
            yield model.problem(
                maker.node,
                "the move to the XLA device, later in another function, replaces the model's "
                "parameters: this optimizer keeps the old ones, and its steps change nothing",
                suggestion="move the model first, then make the optimizer",
                related=[model.place(move.node, "moved here, afterwards")],
            )


def _given_together(model: FileModel, known: Collection[cst.CSTNode]) -> Iterator[Problem]:
    """``xmp.spawn(run, args=(model, optimizer))`` and ``model.to(device)`` in ``run``.

    Of an optimizer that nobody in sight makes: its parameters are those of the parent, on the host.
    """
    for move in model.methods("to"):
        entry, function = model.on_every_core(move.node), move.function
        held = move.receiver
        if entry is None or entry.call is None or function is None or entry.function != function:
            continue
        if move.node in known:
            continue  # told where the optimizer is made
        if not isinstance(held, cst.Name) or held.value not in function.parameters:
            continue
        if model.value(held).kind is not Kind.MODEL or not_here(model, move.node):
            continue
        optimizer = next((x for x in function.parameters if _is_stepped(model, function, x)), None)
        if optimizer is not None:
            yield model.problem(
                move.node,
                f"{optimizer} comes from the process that starts the cores, with the parameters "
                "that this move replaces: its steps change nothing",
                suggestion="make the optimizer here, behind the move",
                related=[model.place(entry.call, "given to the cores here")],
            )


def _is_stepped(model: FileModel, function: Function, name: str) -> bool:
    """Whether a function uses a parameter as its optimizer, and makes none of that name."""
    uses = [one for one in model.within(function.node, cst.Name) if one.value == name]
    return any(model.value(one).kind is Kind.OPTIMIZER for one in uses) and not any(
        model.assigned_to(one) for one in uses
    )


def _makers(model: FileModel) -> list[CallSite]:
    return [call for call in model.calls() if makes_optimizer(model, call)]


def _moved_away(model: FileModel, makers: list[CallSite]) -> Iterator[Problem]:
    """``net.cpu()`` to save it, ``net.to(device)`` and on: the optimizer has the old parameters."""
    moves = [call for call in model.methods("cpu", "to") if _to_cpu(model, call)]
    for loop in model.loops if moves and makers else ():
        calls = model.reached(loop.node)
        if not any(takes_step(model, call) for call in calls):
            continue
        before = [maker for maker in makers if maker not in calls]
        for move in [x for x in moves if x in calls and not not_here(model, x.node)]:
            maker = next((one for one in before if _is_of(model, one, move)), None)
            if maker is None:
                continue
            moves.remove(move)
            yield model.problem(
                move.node,
                "the move to the CPU replaces the model's parameters, and the one back does so "
                "again: the optimizer keeps the old ones, and its steps change nothing from here "
                "on",
                suggestion="leave the model where it is; xm.save(model.state_dict(), path) brings "
                "a copy to the host",
                related=[model.place(maker.node, "made before"), loop_place(model, loop)],
            )


def _to_cpu(model: FileModel, call: CallSite) -> bool:
    """Whether a call moves a model to the CPU."""
    if call.receiver is None or model.value(call.receiver).kind is not Kind.MODEL:
        return False
    if call.method == "cpu":
        return not call.node.args
    target = call.argument(0, "device")
    if isinstance(target, cst.Call) and model.name(target.func) == "torch.device":
        target = model.call(target).argument(0, "type")
    return target is not None and model.literal(target) == "cpu"


def _is_of(model: FileModel, maker: CallSite, move: CallSite) -> bool:
    """Whether an optimizer has the parameters of the model that a call moves."""
    found = [owner for owner, _ in owners(model, maker)]
    name, function = _unwrapped(model, move.receiver), move.function
    if function is maker.function or (
        _is_of_self(name) and _in_one_class(function, maker.function)
    ):
        return any(same_name(owner, name) for owner in found)
    if function is None or not isinstance(name, cst.Name) or name.value not in function.parameters:
        return False
    return any(
        caller.function is maker.function
        and same_name(owner, caller.given_to(function, name.value))
        for caller in model.callers(function)
        for owner in found
    )


def _is_of_self(node: cst.BaseExpression | None) -> bool:
    return isinstance(node, cst.Attribute) and is_name(node.value, "self")


def _in_one_class(one: Function | None, other: Function | None) -> bool:
    if one is None or other is None:
        return False
    return one.owner is not None and one.owner is other.owner


def _unwrapped(model: FileModel, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """``net`` of ``accelerator.unwrap_model(net)``, which on XLA devices gives back ``net``."""
    call = model.call(node) if isinstance(node, cst.Call) else None
    if call is None or call.method != "unwrap_model" or not is_accelerator(model, call):
        return node
    return call.argument(0, "model")


def _in_lightning(model: FileModel) -> Iterator[Problem]:
    """``self.opt = Adam(self.parameters())`` in ``__init__``: Lightning moves the module later.

    Also what ``configure_optimizers`` gives and has not made: ``return self.net.optimizer``.
    """
    if "lightning" not in model.frameworks:
        return
    handed_out = {node for part in (model, *model.linked) for node in part.once(_handed_out)}
    for maker in model.calls():
        if maker.node not in handed_out and not _begins_module(model, maker.function):
            continue
        if model.value(maker.node).kind is not Kind.OPTIMIZER:
            continue
        owner = next((one for one, _ in owners(model, maker)), None)
        if owner is not None and not model.value(owner).on_device:
            yield model.problem(
                maker.node,
                "Lightning moves the module to the XLA device when the training starts, which "
                "replaces its parameters: this optimizer keeps the old ones, and its steps change "
                "nothing",
                suggestion="make the optimizer in configure_optimizers, which Lightning calls "
                "after the move",
            )


def _begins_module(model: FileModel, function: Function | None) -> bool:
    """Whether a function is the ``__init__`` of one of Lightning's modules."""
    if function is None or function.owner is None or function.name != "__init__":
        return False
    return is_lightning(model, function.owner)


def _handed_out(model: FileModel) -> frozenset[cst.CSTNode]:
    """The calls that make what a module's ``configure_optimizers`` gives, and make it elsewhere."""
    found: set[cst.CSTNode] = set()
    for cls in model.classes:
        hook = cls.methods.get("configure_optimizers")
        if hook is None or not is_lightning(model, cls):
            continue
        made_there = {call.node for call in model.reached(hook.node)}
        for node in returned(hook):
            for part in _optimizers_in(model, node):
                origin = model.value(part).origin
                if isinstance(origin, cst.Call) and origin not in made_there:
                    found.add(origin)
    return frozenset(found)


def _optimizers_in(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """``opt`` of ``return opt``, ``return [opt], [rate]`` and ``return {"optimizer": opt}``."""
    if isinstance(node, cst.Tuple | cst.List):
        for one in node.elements:
            yield from _optimizers_in(model, one.value)
    elif isinstance(node, cst.Dict):
        for item in node.elements:
            if isinstance(item, cst.DictElement) and model.literal(item.key) == "optimizer":
                yield item.value
    elif isinstance(node, cst.Name | cst.Attribute):
        value = model.value(node)
        if value.kind is Kind.OPTIMIZER:
            yield node


def _under_accelerate(model: FileModel, makers: list[CallSite]) -> Iterator[Problem]:
    """``model.to(device)`` between the optimizer and ``prepare``, which gives it new parameters.

    Of a model that is still where it was ``prepare`` finds them by name; of one that has moved
    already it raises (Accelerate 1.15, ``Accelerator.prepare``; read, not run).
    """
    prepared = [call for call in model.methods("prepare") if is_accelerator(model, call)]
    for maker in makers if prepared else ():
        for owner, taken in owners(model, maker):
            move = _moved_after(model, maker, owner, taken)
            if move is None or not any(
                call.function is move.function
                and in_order(model, move.node, call.node)
                and any(same_name(one, owner) for one in call.positional)
                for call in prepared
            ):
                continue
            yield model.problem(
                maker.node,
                "the model is moved behind this and before prepare, so the optimizer keeps the "
                "parameters of before: on XLA devices prepare raises ValueError",
                suggestion="leave the move to prepare",
                related=[model.place(move.node, "moved here, afterwards")],
            )
            break


def _wrapped_after(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression, taken: cst.CSTNode
) -> CallSite | None:
    """``model = FSDP(model)`` in the same function, after the parameters were taken."""
    for call in model.calls(FSDP):
        if (
            call.function is maker.function
            and same_name(call.argument(0, "module"), owner)
            and in_order(model, taken, call.node)
        ):
            guards = {guard.node for guard in model.guards(maker.node)}
            inside = {guard.node for guard in model.guards(call.node)} <= guards
            return call if inside else None
    return None


def _moved_after(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression, taken: cst.CSTNode
) -> CallSite | None:
    """The first move to a device in the function, if it comes after the optimizer."""
    if not isinstance(owner, cst.Name | cst.Attribute) or model.value(owner).on_device:
        return None
    moves = moves_of(model, maker, owner)
    if not moves or not in_order(model, taken, moves[0].node):
        return None
    guards = {guard.node for guard in model.guards(maker.node)}
    # ``if is_xla():`` around the move holds on XLA devices.
    asked = (guard for guard in model.guards(moves[0].node) if guard.runs is not OnXla.YES)
    return moves[0] if {guard.node for guard in asked} <= guards else None


def _handed_on(
    model: FileModel, makers: list[CallSite], maker: CallSite, owner: cst.BaseExpression
) -> CallSite | None:
    """``train(net, optimizer)``, whose first lines move the model: the move, in that function."""
    line = model.parent(maker.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(owner, cst.Name) or not isinstance(target, cst.Name):
        return None
    if model.value(owner).on_device:
        return None
    guards = {guard.node for guard in model.guards(maker.node)}
    for call in model.calls_of(maker.function):
        given = {item.value.value for item in call.node.args if isinstance(item.value, cst.Name)}
        if not {owner.value, target.value} <= given:
            continue
        inside = {guard.node for guard in model.guards(call.node)} <= guards
        if inside and in_order(model, maker.node, call.node):
            return _moved_in(model, makers, call, owner.value, _DEPTH)
    return None


def _moved_in(
    model: FileModel, makers: list[CallSite], call: CallSite, given: str, depth: int
) -> CallSite | None:
    """Where a function moves what it is given, always, and makes no optimizer of its own."""
    function = call.target
    if not isinstance(function, Function) or function.owner is not None or call.has_star:
        return None
    if depth == 0 or any(maker.function is function for maker in makers):
        return None
    name = _parameter(call, function, given)
    inner = model.calls_of(function) if name is not None else ()
    for other in inner:
        if not _is_parameter(model, other, name) or model.guards(other.node):
            continue
        if other.method == "to" and is_name(other.receiver, name):
            device = other.argument(0, "device")
            known = device is not None and model.value(device).kind is Kind.DEVICE
            return other if known else None
        deeper = _moved_in(model, makers, other, str(name), depth - 1)
        if deeper is not None:
            return deeper
    return None


def _parameter(call: CallSite, function: Function, given: str) -> str | None:
    """The parameter that gets what the caller calls ``given``."""
    for index, item in enumerate(call.arguments):
        if is_name(item.value, given):
            if item.keyword is not None:
                return item.keyword.value
            return function.parameters[index] if index < len(function.parameters) else None
    return None


def _is_parameter(model: FileModel, call: CallSite, name: str | None) -> bool:
    """Whether a call uses the parameter itself: nothing was bound to its name before."""
    used = [call.receiver, *(item.value for item in call.node.args)]
    return any(
        isinstance(node, cst.Name)
        and node.value == name
        and all(
            binding.kind == "param" or binding.node is call.node
            for binding in model.bindings(node.value, node)
        )
        for node in used
    )


def _made_again(
    model: FileModel,
    makers: list[CallSite],
    maker: CallSite,
    owner: cst.BaseExpression,
    move: CallSite,
) -> bool:
    """Whether the model gets another optimizer after the move: the first may be for nothing."""
    return any(
        other is not maker
        and other.function is maker.function
        and in_order(model, move.node, other.node)
        and any(same_name(again, owner) for again, _ in owners(model, other))
        for other in makers
    )
