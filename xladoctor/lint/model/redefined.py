"""Functions that a file defines anew further on, as notebooks do, and who calls them before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.parts import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.syntax import Tree


def called_as_it_was(tree: Tree) -> frozenset[cst.CSTNode]:
    """Functions at the top of a file that see its names as they were where they were called.

    Those that are defined anew further on, and those that the file's own statements name before
    such a definition: ``run()`` calls the ``train`` of its time.
    """
    found: set[cst.CSTNode] = set()
    for module in tree.modules:
        functions = {
            name: [item.node for item in bindings if item.kind == "function"]
            for name, bindings in tree.scopes[module].bindings.items()
        }
        again = {node for nodes in functions.values() for node in nodes[1:]}
        if again:
            found.update(node for nodes in functions.values() for node in nodes[:-1])
            for name in _named_before(module, again):
                found.update(functions.get(name, ()))
    return frozenset(found)


def _named_before(module: cst.Module, again: set[cst.CSTNode]) -> Iterator[str]:
    """The names that a file's own statements have before the last of some definitions."""
    body = module.body
    last = max((index for index, item in enumerate(body) if item in again), default=0)
    for statement in body[:last]:
        if not isinstance(statement, cst.FunctionDef | cst.ClassDef):
            for node in walk(statement, into_functions=False):
                if isinstance(node, cst.Name):
                    yield node.value
