"""Which modules a file cannot do without: what it imports as it is read, or as a script runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import imported
from xladoctor.lint.model.parts import walk
from xladoctor.lint.model.trials import asks_for_script

if TYPE_CHECKING:
    from collections.abc import Collection

    from xladoctor.lint.model.syntax import Tree


def needed(tree: Tree, modules: Collection[str]) -> frozenset[str]:
    """Those of some modules that a file imports whatever happens, as its imports spell them.

    At its top, or in the functions that ``if __name__ == "__main__":`` calls.

    Args:
        tree: The file.
        modules: The modules.
    """
    run = _run_by_script(tree)
    return frozenset(
        module
        for node in tree.imports
        for module in modules
        if _takes(node, module) and _is_sure(tree, node, run)
    )


def is_top(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether a node runs when its file is imported, whatever happens."""
    inside = (cst.FunctionDef, cst.Lambda, cst.If, cst.Try)
    return not any(isinstance(one, inside) for one in tree.ancestors(node))


def _takes(node: cst.CSTNode, module: str) -> bool:
    if not isinstance(node, cst.Import | cst.ImportFrom):
        return False
    prefix = f"{module.removesuffix('.')}."
    return any(f"{name}.".startswith(prefix) for name in imported(node))


def _is_sure(tree: Tree, node: cst.CSTNode, run: frozenset[str]) -> bool:
    return all(
        around.name.value in run
        if isinstance(around, cst.FunctionDef)
        else not isinstance(around, cst.Lambda | cst.If | cst.Try)
        for around in tree.ancestors(node)
    )


def _run_by_script(tree: Tree) -> frozenset[str]:
    """The names of the functions that a file calls where it is the script."""
    return frozenset(
        part.func.value
        for node in tree.nodes(cst.If)
        if isinstance(node, cst.If) and asks_for_script(node)
        for part in walk(node.body)
        if isinstance(part, cst.Call) and isinstance(part.func, cst.Name)
    )
