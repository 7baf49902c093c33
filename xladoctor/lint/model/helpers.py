"""Functions that do one thing alone: what they return says all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model.syntax import Function


def only_returned(function: Function) -> cst.BaseExpression | None:
    """What a function returns whose body is nothing else, but for a docstring."""
    node = function.node
    if isinstance(node, cst.Lambda):
        return node.body
    if node.asynchronous is not None:
        return None
    lines = [
        statement
        for line in node.body.body
        for statement in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
        if not _is_text(statement)
    ]
    if len(lines) != 1 or not isinstance(lines[0], cst.Return):
        return None
    return lines[0].value


def moved_parameter(function: Function) -> str | None:
    """The parameter that a function moves to a device and gives back, if it does nothing else."""
    made = only_returned(function)
    if not isinstance(made, cst.Call) or not isinstance(made.func, cst.Attribute):
        return None
    moved = made.func.value
    if made.func.attr.value != "to" or not isinstance(moved, cst.Name):
        return None
    return moved.value if moved.value in function.parameters else None


def _is_text(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Expr) and isinstance(
        node.value, cst.SimpleString | cst.ConcatenatedString
    )
