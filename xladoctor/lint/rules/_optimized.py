"""Whose parameters an optimizer takes, when it asks for them, and where those models are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._exact import assigned, in_order, same_name
from xladoctor.lint.rules._object_runs import HOLDERS, PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: How many names and lists are followed.
_DEPTH = 3
_MADE_AT_ONCE = cst.List | cst.ListComp | cst.Tuple
#: Methods of models that make their optimizer: nanoGPT's, Lightning's.
CONFIGURES = frozenset({"configure_optimizer", "configure_optimizers"})
#: What asks for what it is given only when somebody goes over it.
_ASKS_LATER = frozenset({"builtins.filter", "builtins.iter", "itertools.chain"})


def owners(model: FileModel, maker: CallSite) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """What stands before ``.parameters()`` in the optimizer's arguments, and when it is asked.

    A list of groups that is made before asks then; a generator asks when it is used. A part of a
    model (``net.head.parameters()``) is moved with it, unless it is on the device before.
    """
    for owner, taken in _asked_in(model, maker.node, maker.node, _DEPTH):
        yield owner, taken
        while isinstance(owner, cst.Attribute) and not _is_there(model, maker, owner, taken):
            owner = owner.value
            if is_name(owner, "self") and not _is_module(model, maker):
                break
            yield owner, taken


def _is_there(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression, taken: cst.CSTNode
) -> bool:
    """Whether a part of a model was moved before its parameters were taken."""
    moves = moves_of(model, maker, owner)
    return model.value(owner).on_device or bool(moves and in_order(model, moves[0].node, taken))


def _is_module(model: FileModel, maker: CallSite) -> bool:
    """Whether ``self`` is a module of torch, which moves its parts with it."""
    owner = maker.function.owner if maker.function is not None else None
    return (
        owner is not None
        and "torch.nn.Module" in model.library_bases(owner)
        and not any("to" in one.methods for one in (owner, *model.parents(owner)))
    )


def _asked_in(
    model: FileModel, source: cst.BaseExpression, taken: cst.CSTNode, depth: int
) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """The models whose parameters an expression holds, also through lists that are filled first."""
    for part in walk(source):
        if (
            isinstance(part, cst.Call)
            and isinstance(part.func, cst.Attribute)
            and part.func.attr.value in PARAMETERS
        ):
            yield part.func.value, taken
        elif isinstance(part, cst.Call):
            # ``create_optimizer_v2(net)``, ``AdamW(groups_of(net))``: who gets it asks for them.
            models = [x.value for x in part.args if model.value(x.value).kind is Kind.MODEL]
            # A function of the program that makes the optimizer is told there.
            makes = part is taken and isinstance(model.call(part).target, Function)
            if models and not makes and not _moves(model, model.call(part)):
                yield from ((owner, taken) for owner in models)
        elif isinstance(part, cst.Name) and depth:
            for value in assigned(model, part):
                if isinstance(value, _MADE_AT_ONCE):
                    yield from _asked_in(model, value, value, depth - 1)
                else:
                    yield from _given_out(model, value, taken, depth - 1)
            yield from _filled(model, part)


def _given_out(
    model: FileModel, value: cst.BaseExpression, taken: cst.CSTNode, depth: int
) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """``chosen = filter(is_trained, net.parameters())``, ``params = list(net.parameters())``."""
    if isinstance(value, cst.GeneratorExp):
        yield from _asked_in(model, value.for_in.iter, taken, depth)
    if not isinstance(value, cst.Call):
        return
    if isinstance(value.func, cst.Attribute) and value.func.attr.value in PARAMETERS:
        yield value.func.value, taken
        return
    name = model.name(value.func)
    for item in value.args if name in HOLDERS else ():
        when = taken if name in _ASKS_LATER else value
        if isinstance(item.value, cst.Name) and depth:
            yield from _asked_in(model, item.value, when, depth - 1)
        else:
            yield from _given_out(model, item.value, when, depth)


def _moves(model: FileModel, call: CallSite) -> bool:
    """Whether what is called moves something to a device itself."""
    reached = model.reached(call.node) if isinstance(call.target, Function) else ()
    return any(one.method == "to" for one in reached)


def _filled(model: FileModel, name: cst.Name) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """``for p in net.parameters(): decayed.append(p)``: the model, and the loop."""
    function = model.function_of(name)
    for call in model.methods("append", "extend"):
        loop = model.loop(call.node)
        if call.function is not function or not is_name(call.receiver, name.value):
            continue
        if loop is None or not isinstance(loop.node, cst.For):
            continue
        bound = set(names_bound(loop.node.target))
        given = {part.value for part in walk(call.node) if isinstance(part, cst.Name)}
        if not bound & given:
            continue
        for part in walk(loop.node.iter):
            if (
                isinstance(part, cst.Call)
                and isinstance(part.func, cst.Attribute)
                and part.func.attr.value in PARAMETERS
            ):
                yield part.func.value, loop.node


def moves_of(model: FileModel, maker: CallSite, owner: cst.BaseExpression) -> list[CallSite]:
    """The moves of a model to a device in the function that makes an optimizer."""
    moves = [
        call
        for call in model.methods("to")
        if call.function is maker.function
        and call.receiver is not None
        and (target := call.argument(0, "device")) is not None
        and model.value(target).kind is Kind.DEVICE
    ]
    each = [owner, *_also_called(model, maker, owner)] if moves else []
    return [call for call in moves if any(same_name(call.receiver, one) for one in each)]


def _also_called(
    model: FileModel, maker: CallSite, owner: cst.BaseExpression
) -> Iterator[cst.BaseExpression]:
    """``self.model`` of ``model`` and back, where ``self.model = model`` stands before the maker.

    Of a parameter that its function binds to nothing else.
    """
    for line in model.nodes(cst.Assign):
        target = line.targets[0].target
        if (
            len(line.targets) == 1
            and isinstance(target, cst.Attribute)
            and is_name(target.value, "self")
            and isinstance(line.value, cst.Name)
            and model.is_parameter(line.value)
            and len(model.bindings(line.value.value, line.value)) == 1
            and model.function_of(line) is maker.function
            and not model.guards(line)
            and in_order(model, line, maker.node)
        ):
            if same_name(line.value, owner):
                yield target
            elif same_name(target, owner):
                yield line.value
