"""Loops that put something else in each place of a dictionary or list.

``for name, x in batch.items(): batch[name] = x.to(device)``: behind it all of the batch is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import asked_for_none
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.dotted import assignments, dotted_text, is_name
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.values import Kind, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What makes a list of what is gone over, so that it may be changed meanwhile.
_COPIES = frozenset({"list", "tuple", "sorted", "set"})
#: Conditions on the type of what is replaced: what is no tensor stays, and is nothing to ask about.
_ASK_TYPE = frozenset({"isinstance", "hasattr", "torch.is_tensor", "is_tensor", "callable"})
_TENSORS = frozenset({Kind.CPU_TENSOR, Kind.DEVICE_TENSOR, Kind.ARRAY, Kind.NUMBER})
_MOVES = frozenset({"to", "cuda", "cpu", "xla", "detach"})


def replaced(loop: cst.For) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """What a loop replaces all of, and by what; None if it does not."""
    found = _gone_over(loop)
    if found is None:
        return None
    holder, key, counted = found
    for line in _always(loop.body):
        for target, value in assignments(line):
            if _is_place(target, holder, key) and (not counted or _is_move(value)):
                return holder, value
    return None


def after(before: Value, value: Value) -> Value | None:
    """What the dictionary or list is then, None if the loop says nothing new of it."""
    if value.kind not in _TENSORS:
        return None
    if before.kind is Kind.CONTAINER:
        return container(value).but(certain=False, type_name=before.type_name)
    if value.kind is Kind.NUMBER or before.kind not in {*_TENSORS, Kind.UNKNOWN}:
        return None
    if before.kind is Kind.UNKNOWN:
        return container(value).but(certain=False)
    return value.but(certain=False)


def _gone_over(loop: cst.For) -> tuple[cst.BaseExpression, str, bool] | None:
    """The dictionary or list, the name of its keys, and whether these are places of a list."""
    over = _without_copy(loop.iter)
    names = [part.value for part in _names(loop.target)]
    if not names:
        return None
    if not isinstance(over, cst.Call):
        return (over, names[0], False) if len(names) == 1 else None
    if isinstance(over.func, cst.Attribute) and not over.args:
        pairs = {"items": 2, "keys": 1}.get(over.func.attr.value)
        return (over.func.value, names[0], False) if pairs == len(names) else None
    if is_name(over.func, "enumerate") and len(over.args) == 1 and len(names) == 2:
        return over.args[0].value, names[0], True
    if is_name(over.func, "range") and len(over.args) == 1 and len(names) == 1:
        end = over.args[0].value
        if isinstance(end, cst.Call) and is_name(end.func, "len") and len(end.args) == 1:
            return end.args[0].value, names[0], True
    return None


def _without_copy(node: cst.BaseExpression) -> cst.BaseExpression:
    """``list(batch.items())``: what a copy is made of."""
    while (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value in _COPIES
        and len(node.args) == 1
    ):
        node = node.args[0].value
    return node


def _names(target: cst.BaseExpression) -> Iterator[cst.Name]:
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, cst.Tuple):
        for element in target.elements:
            if isinstance(element.value, cst.Name):
                yield element.value


def _always(body: cst.BaseSuite) -> Iterator[cst.CSTNode]:
    """The lines that each turn runs, or each turn with a tensor."""
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            yield from statement.body
        elif isinstance(statement, cst.BaseSmallStatement):
            yield statement
        elif isinstance(statement, cst.If) and _asks_type(statement.test):
            yield from _always(statement.body)


def _asks_type(test: cst.BaseExpression) -> bool:
    """``isinstance(x, torch.Tensor)``, ``x is not None``: no question of what the key is."""
    if (asked := asked_for_none(test)) is not None:
        return not asked[1]
    return isinstance(test, cst.Call) and dotted_text(test.func) in _ASK_TYPE


def _is_place(target: cst.BaseExpression, holder: cst.BaseExpression, key: str) -> bool:
    """``batch[name]`` of the dictionary that is gone over, by the name of the loop."""
    text = dotted_text(holder)
    if not isinstance(target, cst.Subscript) or text is None:
        return False
    return dotted_text(target.value) == text and is_name(index_of(target), key)


def _is_move(value: cst.BaseExpression) -> bool:
    """``x.to(device)``: of a list it has to be seen that its parts stay tensors."""
    return any(
        isinstance(part, cst.Call)
        and isinstance(part.func, cst.Attribute)
        and part.func.attr.value in _MOVES
        for part in walk(value)
    )
