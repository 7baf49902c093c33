"""Sums with a core's number from which that number is taken again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._cores import differs
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel


def taken_back(model: FileModel, node: cst.BaseExpression) -> bool:
    """``args.seed - rank``, behind ``args.seed += rank``: the number that all cores have."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Subtract):
        return False
    kept, core = dotted_text(node.left), dotted_text(node.right)
    lines: list[cst.Assign | cst.AugAssign] = [
        *model.nodes(cst.Assign),
        *model.nodes(cst.AugAssign),
    ]
    writes = [
        line
        for line in sorted(lines, key=model.tree.order.__getitem__)
        if model.function_of(line) is model.function_of(node)
        and kept in {dotted_text(target) for target in _targets(line)}
        and in_order(model, line, node)
    ]
    if kept is None or core is None or not writes:
        return False
    *before, last = writes
    if any(differs(model, line.value) for line in before):
        return False
    if isinstance(last, cst.AugAssign):
        return isinstance(last.operator, cst.AddAssign) and dotted_text(last.value) == core
    made = last.value
    if not isinstance(made, cst.BinaryOperation) or not isinstance(made.operator, cst.Add):
        return False
    return (dotted_text(made.right) == core and not differs(model, made.left)) or (
        dotted_text(made.left) == core and not differs(model, made.right)
    )


def _targets(line: cst.Assign | cst.AugAssign) -> Iterator[cst.BaseExpression]:
    if isinstance(line, cst.AugAssign):
        yield line.target
    else:
        yield from (one.target for one in line.targets)
