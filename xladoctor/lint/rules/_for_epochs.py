"""What is made once and given to a function that goes over it epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.rules._exact import around, assigned, in_order
from xladoctor.lint.rules._sharded import bound
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: How callers name the number of epochs.
_EPOCHS = "epochs"


def taken_for_epochs(model: FileModel, made: CallSite) -> cst.CSTNode | None:
    """Where a name that holds what was made is given to a function for several epochs.

    ``fit(model, batches, epochs=3)``, if nobody has read ``fit``; otherwise if an epoch loop of it
    goes over that parameter.
    """
    target = bound(model, made)
    if not isinstance(target, cst.Name):
        return None
    for call in model.calls():
        if call.function is not made.function or _anew(model, call.node, made.node):
            continue
        for argument in call.arguments:
            value = argument.value
            if not isinstance(value, cst.Name) or value.value != target.value:
                continue
            if _holds(model, value, made.node) and _for_epochs(model, call, argument):
                return call.node
    return None


def _anew(model: FileModel, call: cst.CSTNode, made: cst.CSTNode) -> bool:
    """Whether both stand in one loop: it is made for each call."""
    loops = {node for node in around(model, made) if isinstance(node, cst.For | cst.While)}
    return bool(loops) and not loops.isdisjoint(around(model, call))


def _holds(model: FileModel, name: cst.Name, made: cst.CSTNode) -> bool:
    """Whether a name is what was made, and nothing that is assigned to it later."""
    values = assigned(model, name)
    last = all(one is made or in_order(model, one, made) for one in values)
    return last and any(one is made for one in values) and in_order(model, made, name)


def _for_epochs(model: FileModel, call: CallSite, given: cst.Arg) -> bool:
    target = call.target
    if target is None:
        return any(_is_number(model, one) for one in call.arguments)
    if not isinstance(target, Function):
        return False
    parameter = _parameter(call, target, given)
    return parameter is not None and any(
        loop.kind is LoopKind.EPOCH
        and loop.function is target
        and model.turns(loop) != 1
        and any(_is_read(part, parameter) for part in walk(loop.node))
        for loop in model.loops
    )


def _is_number(model: FileModel, argument: cst.Arg) -> bool:
    """``epochs=args.epochs``, ``num_epochs``: more than one, as far as is known."""
    name = argument.keyword.value if argument.keyword is not None else last_name(argument.value)
    return _EPOCHS in words(name) and model.literal(argument.value) != 1


def _parameter(call: CallSite, target: Function, given: cst.Arg) -> str | None:
    return next(
        (name for name in target.parameters if call.given_to(target, name) is given.value), None
    )


def _is_read(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name
