"""Names that a file uses and binds nowhere, and the modules that they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import LEFT_OUT, LEFT_OUT_CLASSES, LEFT_OUT_TOO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xladoctor.lint.model.syntax import Binding, Scope, Tree


def left_out(tree: Tree, bound: Callable[[str, Scope], list[Binding] | None]) -> Mapping[str, str]:
    """The modules that a file uses and does not import, by the names that it has for them.

    ``xm.xla_device()`` behind ``from utilities import *``, in a part of a notebook.

    Args:
        tree: The file's syntax.
        bound: The bindings that a name has when read in a scope.
    """
    found: dict[str, str] = {}
    for node in tree.by_type.get(cst.Attribute, ()):
        assert isinstance(node, cst.Attribute)
        name = node.value.value if type(node.value) is cst.Name else ""
        if name in LEFT_OUT and name not in found:
            rows = (LEFT_OUT[name], LEFT_OUT_TOO.get(name))
            said = (row for row in rows if row and (not row[1] or node.attr.value in row[1]))
            module, _ = next(said, ("", None))
            if module and bound(name, tree.scopes[node]) is None:
                found[name] = module
    if _takes_all(tree):
        for call in tree.calls:
            name = call.func.value if type(call.func) is cst.Name else ""
            unbound = name in LEFT_OUT_CLASSES and name not in found
            if unbound and bound(name, tree.scopes[call]) is None:
                found[name] = LEFT_OUT_CLASSES[name]
    return found


def _takes_all(tree: Tree) -> bool:
    """Whether a file takes all that a module has: ``from utilities import *``."""
    return any(
        isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar)
        for node in tree.imports
    )
