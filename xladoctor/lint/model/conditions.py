"""What a condition asks, behind names and ``not``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.syntax import Tree

_CONDITIONS = frozenset([cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Call])
#: How many names a condition may have.
_DEPTH = 3


def compared(node: cst.Comparison) -> list[cst.BaseExpression]:
    """The sides of ``a < b <= c``."""
    return [node.left, *(one.comparator for one in node.comparisons)]


def joined(test: cst.BaseExpression, by: type[cst.And | cst.Or]) -> Iterator[cst.BaseExpression]:
    """The conditions of ``one or another or a third``, or of ``and``; else the condition itself."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, by):
        yield from joined(test.left, by)
        yield from joined(test.right, by)
    else:
        yield test


def asked_for_none(test: cst.CSTNode) -> tuple[cst.BaseExpression, bool] | None:
    """``x`` of ``x is None``, and whether it is so where the condition holds: not ``is not``."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    [asked] = test.comparisons
    if not isinstance(asked.operator, cst.Is | cst.IsNot) or not is_name(asked.comparator, "None"):
        return None
    return test.left, isinstance(asked.operator, cst.Is)


def without_not(test: cst.BaseExpression, *, when: bool) -> tuple[cst.BaseExpression, bool]:
    """What stands behind ``not``, which has to have the opposite value then."""
    while type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
        test, when = test.expression, not when
    return test, when


def meant(
    tree: Tree,
    test: cst.BaseExpression,
    *,
    when: bool,
    depth: int = _DEPTH,
) -> tuple[cst.BaseExpression, bool]:
    """What is asked by a name: ``is_due = step % 10 == 0``, ``due = not early``.

    Args:
        tree: The syntax of the file or files.
        test: The condition as it is written.
        when: The value that it has to have.
        depth: How many names may stand in between.

    Returns:
        The expression that is asked for, and the value that it has to have.
    """
    test, when = without_not(test, when=when)
    if type(test) is cst.Name and depth:
        made = tree.assigned_once(test)
        if made is not None and type(made) in _CONDITIONS:
            return meant(tree, made, when=when, depth=depth - 1)
    return test, when
