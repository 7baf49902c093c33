"""The value of expressions with operators: arithmetic, logic, comparisons."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import booleans
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import without_places
from xladoctor.lint.model.dotted import dotted_text, is_name, string
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.turns import both_sides
from xladoctor.lint.model.values import NUMBER, Kind, Value, join

if TYPE_CHECKING:
    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame

#: What leaves masks masks.
_LOGICAL = frozenset([cst.BitAnd, cst.BitOr, cst.BitXor])
_LOGICAL_ASSIGN = frozenset([cst.BitAndAssign, cst.BitOrAssign, cst.BitXorAssign])


class Operators:
    """Evaluates expressions with operators.

    Args:
        evaluator: Evaluates what they are put between.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._flow = evaluator.flow

    def augmented(self, node: cst.AugAssign, before: Value, frame: Frame) -> Value:
        """What ``target += value`` leaves in the target, which held another value before."""
        logical = type(node.operator) in _LOGICAL_ASSIGN
        return combine(before, self._evaluator.evaluate(node.value, frame), logical=logical)

    def binary(self, node: cst.BinaryOperation, frame: Frame) -> Value:
        """``a + b``, ``mask & other``, and texts: ``"%s" % meter``."""
        left = self._evaluator.evaluate(node.left, frame)
        right = self._evaluator.evaluate(node.right, frame)
        text = cst.SimpleString | cst.ConcatenatedString | cst.FormattedString
        if isinstance(node.operator, cst.Modulo) and isinstance(node.left, text):
            for value in right.items or (right,):
                self._evaluator.shown(node, value)
            return NUMBER.but(local=right.local)
        if booleans.MASTERS & {left.kind, right.kind} and both_sides(node) is not None:
            return booleans.both(left, right, together=isinstance(node.operator, cst.BitAnd))
        return combine(left, right, logical=type(node.operator) in _LOGICAL)

    def boolean(self, node: cst.BooleanOperation, frame: Frame) -> Value:
        """``a and b``."""
        left = self._evaluator.evaluate(node.left, frame)
        right = self._evaluator.evaluate(node.right, frame)
        return booleans.both(left, right, together=isinstance(node.operator, cst.And))

    def unary(self, node: cst.UnaryOperation, frame: Frame) -> Value:
        """``not a``, ``-a``."""
        value = self._evaluator.evaluate(node.expression, frame)
        if not isinstance(node.operator, cst.Not):
            return value
        flipped = {
            Kind.IS_MASTER: Kind.NOT_MASTER,
            Kind.NOT_MASTER: Kind.IS_MASTER,
            Kind.CORE_NUMBER: Kind.IS_MASTER,
        }
        if value.kind in flipped:
            return value.but(kind=flipped[value.kind])
        return NUMBER.but(local=value.local)

    def comparison(self, node: cst.Comparison, frame: Frame) -> Value:
        """``a == b``, ``rank == 0``, ``x is None``."""
        left = self._evaluator.evaluate(node.left, frame)
        rest = [self._evaluator.evaluate(item.comparator, frame) for item in node.comparisons]
        operator = node.comparisons[0].operator
        local = left.local or any(value.local for value in rest)
        if isinstance(operator, cst.Is | cst.IsNot) and is_name(
            node.comparisons[0].comparator, "None"
        ):
            return NUMBER  # whether there is a value at all, not which
        if isinstance(operator, cst.Is | cst.IsNot | cst.In | cst.NotIn):
            return NUMBER.but(local=local and left.kind is not Kind.DEVICE_TENSOR)
        sides = ((left, node.comparisons[0].comparator), (rest[0], node.left))
        for turned, (number, other) in enumerate(sides):
            if number.kind is Kind.CORE_NUMBER and _is_below_all(operator, other, bool(turned)):
                return NUMBER
            if isinstance(other, cst.Integer) and (
                number.kind is Kind.CORE_NUMBER or self._says_core(node, number, other)
            ):
                return _asks_for_master(number, operator, other.value)
            if number.kind is Kind.CORE_NUMBER and isinstance(other, cst.SimpleString):
                return _asks_for_master(number, operator, str(string(other)))
        tensor = functools.reduce(combine, rest, left)
        if tensor.kind in booleans.TENSORS:
            return tensor.but(boolean=True)
        if tensor.made_of_device:
            return tensor
        return NUMBER.but(local=local)

    def _says_core(self, node: cst.Comparison, number: Value, other: cst.Integer) -> bool:
        """``rank == 0`` of a rank that comes from elsewhere: the environment, a helper's module.

        Also of settings: ``options["rank"] == 0``.
        """
        if other.value != "0" or number.kind not in {Kind.UNKNOWN, Kind.NUMBER}:
            return False
        key = index_of(node.left) if isinstance(node.left, cst.Subscript) else None
        if isinstance(key, cst.SimpleString):
            name = str(string(key)).lower()
        else:
            name = (dotted_text(node.left) or "").rpartition(".")[2].lower()
        return self._flow.belief.believes() and bool(know.CORE_NAME.search(name))


def combine(left: Value, right: Value, *, logical: bool = False) -> Value:
    """What an arithmetic operator makes of two values; ``logical``: one of ``&``, ``|``, ``^``."""
    if Kind.NOTHING in {left.kind, right.kind}:
        return join(left, right)
    local = left.local or right.local
    for kind in (Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY):
        sides = [value for value in (left, right) if value.kind is kind]
        if sides:
            if kind is not Kind.DEVICE_TENSOR and Kind.UNKNOWN in {left.kind, right.kind}:
                return Value(local=local)
            best = next((value for value in sides if value.certain), sides[0])
            return best.but(local=local, boolean=logical and (left.boolean or right.boolean))
    if left.kind is Kind.CONTAINER and right.kind is Kind.CONTAINER:
        return without_places(join(left, right))
    if Kind.CONTAINER in {left.kind, right.kind}:
        return left if left.kind is Kind.CONTAINER else right
    if Kind.UNKNOWN in {left.kind, right.kind}:
        return Value(local=local, made_of_device=left.made_of_device or right.made_of_device)
    return NUMBER.but(local=local)


def _is_below_all(operator: cst.BaseCompOp, other: cst.BaseExpression, turned: bool) -> bool:
    """``rank != -1``, ``rank >= 0``: whether it was launched at all, which all cores answer alike.

    Args:
        operator: What compares the core's number.
        other: With what.
        turned: Whether that stands on the left.
    """
    if isinstance(other, cst.UnaryOperation) and isinstance(other.operator, cst.Minus):
        return isinstance(other.expression, cst.Integer)
    asking = (
        (cst.GreaterThan, cst.LessThanEqual) if turned else (cst.LessThan, cst.GreaterThanEqual)
    )
    return isinstance(other, cst.Integer) and other.value == "0" and isinstance(operator, asking)


def _asks_for_master(number: Value, operator: cst.BaseCompOp, literal: str) -> Value:
    kind = Kind.NUMBER
    if literal == "0" and isinstance(operator, cst.Equal):
        kind = Kind.IS_MASTER
    elif literal == "0" and isinstance(operator, cst.NotEqual | cst.GreaterThan | cst.LessThan):
        kind = Kind.NOT_MASTER
    return number.but(kind=kind, local=True)
