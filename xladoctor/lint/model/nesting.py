"""Which loops stand around a node, and what stands in a loop."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model.syntax import LoopNode, Tree

#: Asked by type, for most nodes are neither, and LibCST's abstract classes make isinstance slow.
_DEFINITIONS = frozenset([cst.FunctionDef, cst.Lambda, cst.ClassDef])
_REPEATING = frozenset(
    [
        cst.For, cst.While, cst.CompFor, cst.GeneratorExp, cst.ListComp, cst.SetComp, cst.DictComp,
    ]
)  # fmt: skip


class Nesting:
    """The loops around the nodes of a file, or of several linked ones.

    Args:
        tree: The syntax.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._innermost: dict[cst.CSTNode, LoopNode | None] = {}
        self._outside: dict[cst.CSTNode, tuple[LoopNode, ...]] = {}
        #: The innermost loop around each call and loop, in the same function.
        self.around = {node: self.innermost(node) for node in (*tree.calls, *tree.loops)}

    @functools.cached_property
    def inside(self) -> dict[LoopNode, dict[cst.CSTNode, None]]:
        """The calls and loops that stand in each loop, in order."""
        found: dict[LoopNode, dict[cst.CSTNode, None]] = {loop: {} for loop in self._tree.loops}
        if not found:
            return found
        for node in (*self._tree.calls, *self._tree.loops):
            for loop in self._loops_around(node):
                found[loop][node] = None
        return found

    def _loops_around(self, node: cst.CSTNode) -> tuple[LoopNode, ...]:
        """The loops around a node, those of other functions too."""
        known = self._outside
        passed: list[cst.CSTNode] = []
        current: cst.CSTNode | None = node
        while current is not None and current not in known:
            passed.append(current)
            current = self._tree.parents.get(current)
        around = known[current] if current is not None else ()
        for current in reversed(passed):
            parent = self._tree.parents.get(current)
            if type(parent) in _REPEATING:
                if isinstance(parent, cst.For | cst.While | cst.CompFor):
                    around = (parent, *around)
                elif isinstance(parent, cst.BaseComp) and current is not parent.for_in:
                    around = (parent.for_in, *around)
            known[current] = around
        return around

    def innermost(self, node: cst.CSTNode) -> LoopNode | None:
        """The innermost loop of the same function that runs a node again and again."""
        found: LoopNode | None = None
        passed: list[cst.CSTNode] = []  # up to a loop, a function or what is known already
        current: cst.CSTNode | None = node
        while current is not None and found is None:
            if current in self._innermost:
                found = self._innermost[current]
                break
            passed.append(current)
            parent = self._tree.parents.get(current)
            if type(parent) in _REPEATING:
                found = _repeating(parent, current)
            current = None if type(parent) in _DEFINITIONS else parent
        self._innermost.update(dict.fromkeys(passed, found))
        return found


def _repeating(parent: cst.CSTNode | None, child: cst.CSTNode) -> LoopNode | None:
    """The loop that a node is, or holds, if it runs what stands right in it again and again."""
    if isinstance(parent, cst.For) and child is parent.body:
        return parent
    if isinstance(parent, cst.While) and child in {parent.body, parent.test}:
        return parent
    if isinstance(parent, cst.BaseComp) and child is not parent.for_in:
        return parent.for_in
    return None
