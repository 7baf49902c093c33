"""Which files ask the variables of torchrun which process they are, or of how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import string

if TYPE_CHECKING:
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: The variables, and what reads them.
_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
_READS = frozenset({"os.environ.get", "os.getenv"})


def reading(tree: Tree, names: Names | LinkedNames) -> frozenset[cst.Module]:
    """The files with ``os.environ["WORLD_SIZE"]``, ``os.getenv("RANK")`` or the like."""
    return frozenset(
        tree.module_of(node)
        for node in tree.strings
        if string(node) in _VARIABLES and _is_read(tree, names, node)
    )


def _is_read(tree: Tree, names: Names | LinkedNames, variable: cst.CSTNode) -> bool:
    """Whether the name of a variable stands where its value is taken."""
    for node in tree.ancestors(variable):
        if isinstance(node, cst.Subscript):
            return names.resolve(node.value) == "os.environ"
        if isinstance(node, cst.Call):
            return names.resolve(node.func) in _READS
    return False
