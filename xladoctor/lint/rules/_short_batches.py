"""Step loops that leave short batches out: ``if x.shape[0] != batch_size: continue``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, walk
from xladoctor.lint.model.helpers import only_returned
from xladoctor.lint.model.turns import leaves

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Loop

_SIZES = frozenset({"size", "numel"})
_NOT_EQUAL = cst.NotEqual | cst.IsNot
#: ``if len(x) < 2: continue`` is for normalization over a batch, and keeps other short ones.
_SMALL = 2


def leaves_short_ones_out(model: FileModel, loop: Loop) -> bool:
    """Whether a loop goes on, or ends, at a batch that has not the size it asks for."""
    if not isinstance(loop.node, cst.For | cst.While):
        return False
    return any(
        isinstance(line, cst.If) and leaves(line.body) and _asks(model, line.test, differs=True)
        for line in loop.node.body.body
    )


def _asks(model: FileModel, test: cst.BaseExpression, *, differs: bool) -> bool:
    """Whether a condition is true where a size differs from (or is) another, or is below it."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _asks(model, test.expression, differs=not differs)
    if isinstance(test, cst.BooleanOperation):
        either = isinstance(test.operator, cst.Or) is differs
        return either and any(_asks(model, x, differs=differs) for x in (test.left, test.right))
    if isinstance(test, cst.Call):
        function = model.call(test).target
        told = only_returned(function) if isinstance(function, Function) else None
        return told is not None and _asks(model, told, differs=differs)
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    sized = _is_size(model, test.left)
    if sized is _is_size(model, other):
        return False
    number = model.literal(other if sized else test.left)
    if isinstance(number, int) and number <= _SMALL:
        return False
    below = cst.LessThan if sized else cst.GreaterThan
    enough = cst.GreaterThanEqual if sized else cst.LessThanEqual
    wanted = (_NOT_EQUAL, below) if differs else (cst.Equal, enough)
    return any(isinstance(operator, kind) for kind in wanted)


def _is_size(model: FileModel, node: cst.BaseExpression) -> bool:
    """``x.shape[0]``, ``x.size(0)``, ``len(x)``, but not ``args.batch_size``."""
    for part in walk(node):
        if isinstance(part, cst.Call):
            if model.name(part.func) == "builtins.len":
                return True
            if isinstance(part.func, cst.Attribute) and part.func.attr.value in _SIZES:
                return True
        if isinstance(part, cst.Attribute) and part.attr.value == "shape":
            return True
    return False
