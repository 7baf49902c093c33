"""Which names of libraries a program sets to something of its own.

``torch.cuda.current_device = xla_device``: whoever calls that by its old name calls the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree


def patched(tree: Tree, names: Names | LinkedNames) -> frozenset[str]:
    """The dotted names that lines of a program's files set anew.

    Args:
        tree: The files.
        names: What their names are bound to.
    """
    return frozenset(name for name in _set(tree, names) if "." in name)


def _set(tree: Tree, names: Names | LinkedNames) -> Iterator[str]:
    for line in tree.nodes(cst.Assign):
        for one in line.targets:
            if isinstance(one.target, cst.Attribute):
                yield names.resolve(one.target) or ""
    for call in tree.calls:  # setattr(torch.cuda, "synchronize", wait)
        if isinstance(call.func, cst.Name) and call.func.value == "setattr" and len(call.args) > 2:
            holder, name = names.resolve(call.args[0].value), text_of(call.args[1].value)
            if holder and name:
                yield f"{holder}.{name}"
