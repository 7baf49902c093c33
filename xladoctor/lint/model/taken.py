"""What names take their values from: ``x, y = pair``, ``for i, (x, y) in pairs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

if TYPE_CHECKING:
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
