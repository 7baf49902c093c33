"""What runs just now in the abstract run, and what rounds have found out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.facts import Facts
from xladoctor.lint.model.redefined import called_as_it_was

if TYPE_CHECKING:
    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.syntax import Function, Tree


class Running:
    """The state of the abstract run.

    Args:
        tree: The syntax of the file or files.

    Attributes:
        module: The module whose code runs.
        functions: The functions that run, the innermost one last.
        frames: What their names hold, and those of their modules.
        known: What the round before has found out.
        found: What this round has found out so far.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.module = tree.modules[0]
        self.functions: list[Function] = []
        self.frames: dict[Function | cst.Module | cst.FunctionDef, Frame] = {}
        self.known = Facts()
        self.found = Facts()

    def home(self) -> cst.Module | cst.FunctionDef:
        """Where the names of the file are looked up that are not bound in a function.

        A notebook that defines ``train`` and ``main`` in one cell, calls ``main()``, and defines
        both anew in another: the first ``main`` calls the first ``train``.
        """
        first = self.functions[0].node if self.functions else None
        if isinstance(first, cst.FunctionDef) and self._is_replaced(first):
            return first
        return self.module

    def _is_replaced(self, node: cst.FunctionDef) -> bool:
        return node in self.replaced and self.tree.module_of(node) is self.module

    @functools.cached_property
    def replaced(self) -> frozenset[cst.CSTNode]:
        """The functions that a file calls itself, and defines anew further on."""
        return called_as_it_was(self.tree)
