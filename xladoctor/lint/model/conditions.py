"""What a condition asks, behind names and ``not``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model.names import LinkedNames, Names
    from xladoctor.lint.model.syntax import Tree

_CONDITIONS = frozenset([cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Call])
#: How many names a condition may have.
_DEPTH = 3


def without_not(test: cst.BaseExpression, *, when: bool) -> tuple[cst.BaseExpression, bool]:
    """What stands behind ``not``, which has to have the opposite value then."""
    while type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
        test, when = test.expression, not when
    return test, when


def meant(
    names: Names | LinkedNames,
    tree: Tree,
    test: cst.BaseExpression,
    *,
    when: bool,
    depth: int = _DEPTH,
) -> tuple[cst.BaseExpression, bool]:
    """What is asked by a name: ``is_due = step % 10 == 0``, ``due = not early``.

    Args:
        names: What names are bound to.
        tree: The syntax of the file or files.
        test: The condition as it is written.
        when: The value that it has to have.
        depth: How many names may stand in between.

    Returns:
        The expression that is asked for, and the value that it has to have.
    """
    test, when = without_not(test, when=when)
    if type(test) is cst.Name and depth:
        made = names.lookup(test.value, tree.scopes[test]) or []
        if len(made) == 1 and made[0].kind == "assign" and type(made[0].node) in _CONDITIONS:
            assert isinstance(made[0].node, cst.BaseExpression)
            return meant(names, tree, made[0].node, when=when, depth=depth - 1)
    return test, when
