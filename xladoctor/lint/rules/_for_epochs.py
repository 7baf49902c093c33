"""What is made once and given to a function that goes over it epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.rules._exact import around, assigned, given_last, in_order
from xladoctor.lint.rules._sharded import bound
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel
    from xladoctor.lint.model.problems import Place

#: How callers name the number of epochs.
_EPOCHS = "epochs"


def taken_for_epochs(model: FileModel, made: CallSite) -> Place | None:
    """Where what was made is given to a function for several epochs.

    ``fit(model, batches, epochs=3)``, if nobody has read ``fit``; otherwise if an epoch loop of it
    goes over that parameter, or ``while True:`` (``def cycle(loader)``).
    """
    target = bound(model, made)
    for call in model.calls():
        if call.function is not made.function:
            continue
        for argument in call.arguments:
            if _goes_round(call, argument):
                if _is_what_was_made(model, argument.value, made, target):
                    return model.place(call.node, "gone over again and again in here: for ever")
            elif (
                isinstance(target, cst.Name)
                and isinstance(argument.value, cst.Name)
                and argument.value.value == target.value
                and not _anew(model, call.node, made.node)
                and _holds(model, argument.value, made.node)
                and _for_epochs(model, call, argument)
            ):
                return model.place(call.node, "given to a function for several epochs")
    return None


def _is_what_was_made(
    model: FileModel, value: cst.BaseExpression, made: CallSite, target: cst.CSTNode | None
) -> bool:
    """Whether an argument is what was made, or what holds it: a name, ``loaders[kind]``."""
    if value is made.node:
        return True
    if isinstance(value, cst.Name):
        return given_last(model, value) is made.node
    return (
        isinstance(value, cst.Subscript | cst.Attribute)
        and isinstance(target, cst.Subscript | cst.Attribute)
        and model.tree.text(value) == model.tree.text(target)
        and in_order(model, made.node, value)
    )


def _goes_round(call: CallSite, given: cst.Arg) -> bool:
    """``while True: for batch in loader: yield batch`` of the function that a call calls."""
    target = call.target
    if not isinstance(target, Function):
        return False
    parameter = _parameter(call, target, given)
    return parameter is not None and any(
        isinstance(part, cst.For) and any(_is_read(name, parameter) for name in walk(part.iter))
        for one in walk(target.node, into_functions=False)
        if isinstance(one, cst.While) and is_name(one.test, "True")
        for part in walk(one.body)
    )


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
