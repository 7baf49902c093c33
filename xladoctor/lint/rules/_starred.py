"""Names that a star import brought once: ``from transformers.trainer import *``."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.lint.model import FileModel


#: What stars brought where another package was installed, and programs use under that condition.
_WHERE_INSTALLED = frozenset({"amp"})


def lost_with_stars(
    model: FileModel, package: str, is_lost: Callable[[str], bool]
) -> Iterator[tuple[cst.ImportFrom, str, list[cst.Name]]]:
    """The star imports of a package, and the names of the file that they bring no more.

    Nothing where a star of another module may bring them.

    Args:
        model: The file.
        package: The package that the stars are of.
        is_lost: Whether a dotted name of it is gone.

    Yields:
        The import, its module, and the first use of each name, in the order of the file.
    """
    stars: list[tuple[cst.ImportFrom, str]] = []
    for line in model.nodes(cst.ImportFrom):
        if not isinstance(line.names, cst.ImportStar):
            continue
        module = dotted_text(line.module) if line.module is not None and not line.relative else ""
        first = (module or "").partition(".")[0]
        if first == package:
            stars.append((line, module or ""))
        elif first not in sys.stdlib_module_names:
            return
    unbound = _unbound(model) if stars else {}
    for line, module in stars:
        lost = [
            node
            for name, node in unbound.items()
            if name not in _WHERE_INSTALLED and is_lost(f"{module}.{name}")
        ]
        if lost and not tolerated(model, line):
            yield line, module, lost


def _unbound(model: FileModel) -> dict[str, cst.Name]:
    """The names that nothing in the file binds, with their first uses."""
    found: dict[str, cst.Name] = {}
    for node in model.nodes(cst.Name):
        known = node.value in found or hasattr(builtins, node.value)
        if not known and node in model.tree.scopes and not model.tree.bindings(node):
            found[node.value] = node
    return found
