"""Code for older releases of torch_xla, beside that for the one that is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Guard

#: What says by its name that a release, or a later one, is there: ``_XLA_GREATER_EQUAL_2_1``.
_LATER = re.compile(r"(?i)(?:xla|torch)_?(?:greater|newer|at_least|since|ge_?\d|gt_?\d)")
#: What compares a release with a number, in the value of a name.
_COMPARES = re.compile(r"(?i)version|RequirementCache|compare_version")


def for_older(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node only runs where torch_xla is older than a release that somebody asked for.

    ``if _XLA_GREATER_EQUAL_2_1: return xr.global_ordinal()`` before it, or in an ``else``.
    """
    return any(_is_older(model, guard) for guard in model.guards(node))


def _is_older(model: FileModel, guard: Guard) -> bool:
    test, when = guard.test, guard.when
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, when = test.expression, not when
    made: cst.BaseExpression | None = test
    if isinstance(test, cst.Name | cst.Attribute):
        name = test if isinstance(test, cst.Name) else test.attr
        if _LATER.search(name.value):
            return not when
        made = model.assigned_once(test)
    if made is None or not _COMPARES.search(model.tree.text(made)):
        return False
    if isinstance(made, cst.Comparison):
        operator = made.comparisons[0].operator
        later = isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual)
        return later is not when
    texts = [part.value for part in walk(made) if isinstance(part, cst.SimpleString)]
    return not when and any(">" in text for text in texts)
