"""How a module or object can be written at a place, with the imports that a file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Binding, Scope, Tree


class Spelling:
    """Answers for one file.

    Args:
        tree: The file's syntax.
        names: What its names are bound to.
    """

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def spelled(self, dotted: str, node: cst.CSTNode) -> str | None:
        """How a module or object can be written at a node ("xm"), None if it is not imported.

        What runs in the order of its lines does not know what is imported below it.
        """
        best, length = None, 0
        scope = self._tree.scopes[node]
        current: Scope | None = scope
        order = self._tree.order
        while current is not None:
            for name, bindings in current.bindings.items():
                for binding in bindings:
                    if binding.kind != "import" or not binding.dotted:
                        continue
                    if scope.lookup(name) is not bindings:
                        continue
                    if current is scope and order[binding.node] > order[node]:
                        continue
                    if current is not self._tree.top and not self._is_imported_at(binding, node):
                        continue
                    if dotted == binding.dotted:
                        return name
                    # ``xm`` and not ``torch_xla.core.xla_model``, whichever is imported first.
                    if self._reaches(binding, name, dotted) and len(binding.dotted) > length:
                        best, length = name + dotted[len(binding.dotted) :], len(binding.dotted)
            current = current.parent
        return best

    def _is_imported_at(self, binding: Binding, node: cst.CSTNode) -> bool:
        """Whether a function has run the import: not one in an ``if`` that does not hold the node.

        At the top of a file such imports ask whether torch_xla is there at all.
        """
        around = set(self._tree.ancestors(node))
        for parent in self._tree.ancestors(binding.node):
            if isinstance(parent, cst.FunctionDef):
                return True
            branch = isinstance(parent, cst.IndentedBlock | cst.Else) and isinstance(
                self._tree.parents[parent], cst.If
            )
            if branch and parent not in around:
                return False
        return True

    def _reaches(self, binding: Binding, name: str, dotted: str) -> bool:
        """``import torch_xla`` alone does not make ``torch_xla.runtime.x`` usable."""
        assert binding.dotted is not None
        if not dotted.startswith(binding.dotted + "."):
            return False
        return name != binding.dotted or any(
            item == dotted or item.startswith(dotted + ".") for item in self._names.imported()
        )
