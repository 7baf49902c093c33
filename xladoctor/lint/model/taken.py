"""What lines set, and what names take their values from: ``for i, (x, y) in pairs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.syntax import Tree

_PARTS = cst.Element | cst.StarredElement | cst.AssignTarget


class Taken(NamedTuple):
    """The line whose target a name is, or is a part of.

    Attributes:
        line: The assignment or the loop.
        places: Where in its target the name stands: (1, 0) for ``x`` of ``i, (x, y)``.
    """

    line: cst.Assign | cst.For | cst.CompFor
    places: tuple[int, ...]

    @property
    def value(self) -> cst.BaseExpression:
        """What is assigned, or gone over, as a whole."""
        return self.line.value if isinstance(self.line, cst.Assign) else self.line.iter


def taken(tree: Tree, target: cst.CSTNode) -> Taken | None:
    """Where a target gets its value; None of ``with``, ``+=`` and what is no target at all."""
    places: list[int] = []
    child = target
    for parent in tree.ancestors(target):
        if isinstance(parent, cst.For | cst.CompFor):
            return Taken(parent, tuple(places[::-1])) if child is parent.target else None
        if isinstance(parent, cst.Assign):
            return Taken(parent, tuple(places[::-1])) if child is not parent.value else None
        if isinstance(parent, cst.Tuple | cst.List):
            places += [at for at, one in enumerate(parent.elements) if one is child]
        elif not isinstance(parent, _PARTS):
            return None
        child = parent
    return None


def targets(line: cst.CSTNode) -> Sequence[cst.BaseExpression]:
    """What ``a = b = 1``, ``a += 1`` and ``a: int = 1`` set; nothing of other lines."""
    if isinstance(line, cst.Assign):
        return [one.target for one in line.targets]
    return [line.target] if isinstance(line, cst.AugAssign | cst.AnnAssign) else []


def names_set(line: cst.CSTNode) -> set[str]:
    """The names that such a line sets, those in tuples left out."""
    return {target.value for target in targets(line) if isinstance(target, cst.Name)}
