"""The names of several files that are linted together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import libcst as cst

    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Class, Function, Tree


class LinkedNames:
    """The names of several files; each question goes to the file of the node it is about.

    Args:
        tree: The trees of all files.
        files: The names of each file.
    """

    def __init__(self, tree: Tree, files: Sequence[Names]) -> None:
        self._tree = tree
        self._by_top = {names.top: names for names in files}

    def _of(self, node: cst.CSTNode) -> Names:
        return self._by_top[self._tree.scopes[node].top]

    def resolve(self, node: cst.BaseExpression) -> str | None:
        """See :meth:`Names.resolve`."""
        return self._of(node).resolve(node)

    def completed(self, func: cst.BaseExpression) -> cst.Call | None:
        """See :meth:`Names.completed`."""
        return self._of(func).completed(func)

    def definition(self, node: cst.BaseExpression) -> Function | Class | None:
        """See :meth:`Names.definition`."""
        return self._of(node).definition(node)

    def helpers(self) -> frozenset[cst.Module]:
        """The modules that another one of the files imports."""
        return frozenset().union(*(names.helpers() for names in self._by_top.values()))

    def importers(self) -> dict[cst.Module, set[cst.Module]]:
        """The modules that others of the files import, each with these others."""
        found: dict[cst.Module, set[cst.Module]] = {}
        for names in self._by_top.values():
            for module in names.helpers():
                found.setdefault(module, set()).add(names.module)
        return found

    def needed(self) -> dict[cst.Module, set[cst.Module]]:
        """The modules that others of the files cannot do without, with these others."""
        found: dict[cst.Module, set[cst.Module]] = {}
        for names in self._by_top.values():
            for module, by in names.needed().items():
                found.setdefault(module, set()).update(by)
        return found

    def linked(self, node: cst.BaseExpression) -> tuple[Names, str] | None:
        """See :meth:`Names.linked`."""
        return self._of(node).linked(node)

    def foreign(self, node: cst.Import | cst.ImportFrom) -> frozenset[str]:
        """See :meth:`Names.foreign`."""
        return self._of(node).foreign(node)

    def assigned_elsewhere(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """See :meth:`Names.assigned_elsewhere`."""
        return self._of(node).assigned_elsewhere(node)
