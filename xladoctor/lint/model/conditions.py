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
        flag = _flag(tree, test)
        if flag is not None:
            return meant(tree, flag[0], when=when is flag[1], depth=depth - 1)
    return test, when


def _flag(tree: Tree, name: cst.Name) -> tuple[cst.BaseExpression, bool] | None:
    """The condition that sets a flag, and what to: ``talks = False``, ``if c: talks = True``.

    Set before that in the same block, or under ``else``, to the opposite, and nowhere else.
    """
    bindings = tree.bindings(name)
    if len(bindings) != 2 or any(one.kind != "assign" for one in bindings):
        return None
    first, last = (tree.statement(one.node) for one in bindings)
    values = [_truth(one.node) for one in bindings]
    if first is None or last is None or None in values or values[0] is values[1]:
        return None
    choice = tree.parents.get(last.block)
    if isinstance(choice, cst.Else):  # ``if c: talks = True``, ``else: talks = False``
        choice = tree.parents.get(choice)
        if isinstance(choice, cst.If) and choice.body is first.block:
            return choice.test, values[0] is True
        return None
    if not isinstance(choice, cst.If) or choice.body is not last.block:
        return None
    around = tree.statement(choice)
    if around is None or around.node is not choice or choice.orelse is not None:
        return None
    before = around.block is first.block and first.index < around.index
    return (choice.test, values[1] is True) if before else None


def _truth(node: cst.CSTNode) -> bool | None:
    return next((one for one in (True, False) if is_name(node, str(one))), None)
