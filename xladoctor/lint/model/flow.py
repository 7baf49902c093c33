"""Kinds of value through a file (first form: nothing is known)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model.values import UNKNOWN, Value

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Class, Function, Tree


class Flow:
    """Values of expressions and targets of calls."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def value(self, node: cst.BaseExpression) -> Value:
        """What an expression evaluates to."""
        del node
        return UNKNOWN

    def target(self, node: cst.Call) -> Function | Class | None:
        """The function or class of this file that a call calls."""
        return self._names.definition(node.func)

    def callers(self, function: Function) -> list[cst.Call]:
        """The calls that call a function."""
        return [node for node in self._tree.calls if self.target(node) is function]
