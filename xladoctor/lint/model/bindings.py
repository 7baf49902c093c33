"""Which nodes give names a meaning: imports, definitions, assignments, loops, parameters."""

from __future__ import annotations

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text, from_names, imports_module, paired
from xladoctor.lint.model.syntax import Binding, Scope, Tree

#: The nodes that give names a meaning.
_BINDING = frozenset(
    [
        cst.Import, cst.ImportFrom, cst.FunctionDef, cst.ClassDef, cst.Param, cst.Assign,
        cst.AnnAssign, cst.NamedExpr, cst.AugAssign, cst.For, cst.CompFor, cst.AsName,
    ]
)  # fmt: skip


def bind(tree: Tree) -> None:
    """Let every scope of a file know what its names are bound to, in source order."""
    binder = _Binder(tree)
    for kind in (cst.Global, cst.Nonlocal):
        for node in tree.by_type.get(kind, ()):
            assert isinstance(node, cst.Global | cst.Nonlocal)
            named = {item.name.value for item in node.names}
            tree.scopes[node].globals |= named
            if kind is cst.Nonlocal:
                tree.scopes[node].outer |= named
    for node, scope in tree.scopes.items():
        if type(node) in _BINDING:
            binder.bind(node, scope)


class _Binder:
    """Fills the scopes of a file.

    Args:
        tree: The file's syntax.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def bind(self, node: cst.CSTNode, scope: Scope) -> None:
        """Bind the names that a node gives a meaning."""
        if type(node) is cst.Assign:
            for target in node.targets:
                self._target(target.target, node.value, scope)
        elif type(node) is cst.Param:
            add(self._tree, scope, node.name.value, Binding("param", node))
        elif isinstance(node, cst.Import):
            for alias in node.names:
                dotted = dotted_text(alias.name)
                if dotted is None:
                    continue
                if alias.asname is not None:
                    assert isinstance(alias.asname.name, cst.Name)
                    add(self._tree, scope, alias.asname.name.value, Binding("import", node, dotted))
                else:
                    first = dotted.partition(".")[0]
                    add(self._tree, scope, first, Binding("import", node, first))
        elif isinstance(node, cst.ImportFrom):
            for name, dotted in from_names(node):
                add(self._tree, scope, name, Binding("import", node, dotted))
        elif isinstance(node, cst.FunctionDef):
            outer = scope.parent if scope.node is node else scope
            assert outer is not None
            add(self._tree, outer, node.name.value, Binding("function", node))
        elif isinstance(node, cst.ClassDef):
            outer = scope.parent if scope.node is node else scope
            assert outer is not None
            add(self._tree, outer, node.name.value, Binding("class", node))
        else:
            self._bind_targets(node, scope)

    def _bind_targets(self, node: cst.CSTNode, scope: Scope) -> None:
        if isinstance(node, cst.AnnAssign):
            if node.value is not None:
                self._target(node.target, node.value, scope)
        elif isinstance(node, cst.NamedExpr):
            self._target(node.target, node.value, scope)
        elif isinstance(node, cst.AugAssign | cst.For | cst.CompFor):
            self._target(node.target, None, scope)
        elif isinstance(node, cst.AsName) and not isinstance(
            self._tree.parents[node], cst.ImportAlias
        ):
            self._target(node.name, None, scope)

    def _target(
        self, target: cst.BaseExpression, value: cst.BaseExpression | None, scope: Scope
    ) -> None:
        if isinstance(target, cst.Name):
            module = None if value is None else imports_module(value)
            if module is not None:
                assert value is not None
                add(self._tree, scope, target.value, Binding("import", value, module))
                return
            binding = Binding("other", target) if value is None else Binding("assign", value)
            add(self._tree, scope, target.value, binding)
        elif isinstance(target, cst.Tuple | cst.List):
            pairs = [*paired(target, value)] if value is not None else []
            if not pairs or pairs[0][0] is target:  # nobody sees what each is given
                for element in target.elements:
                    self._target(element.value, None, scope)
                return
            for one, given in pairs:
                self._target(one, given, scope)


def add(tree: Tree, scope: Scope, name: str, binding: Binding) -> None:
    """Give a name of a scope one more meaning: where ``global`` and ``nonlocal`` say it belongs."""
    if name in scope.outer:
        scope = _function_around(scope, name) or scope
    elif name in scope.globals:
        scope = tree.top
    scope.bindings.setdefault(name, []).append(binding)


def _function_around(scope: Scope, name: str) -> Scope | None:
    """The function that has a name which is ``nonlocal`` in a scope within it."""
    nearest: Scope | None = None
    current = scope.parent
    while current is not None:
        if isinstance(current.node, cst.FunctionDef | cst.Lambda):
            nearest = nearest or current
            if name in current.bindings:
                return current
        current = current.parent
    return nearest
