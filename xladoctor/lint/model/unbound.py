"""Names that a file uses and binds nowhere, and the modules that they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import LEFT_OUT, LEFT_OUT_CALLS, LEFT_OUT_TOO, STARS, dotted_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model.syntax import Tree


def left_out(tree: Tree) -> Mapping[str, str]:
    """The modules that a file uses and does not import, by the names that it has for them.

    ``xm.xla_device()`` behind ``from utilities import *``, in a part of a notebook.

    Args:
        tree: The file's syntax.
    """
    found: dict[str, str] = {}
    for node in tree.by_type.get(cst.Attribute, ()):
        assert isinstance(node, cst.Attribute)
        name = node.value.value if type(node.value) is cst.Name else ""
        if name in LEFT_OUT and name not in found:
            rows = (LEFT_OUT[name], LEFT_OUT_TOO.get(name))
            said = (row for row in rows if row and (not row[1] or node.attr.value in row[1]))
            module, _ = next(said, ("", None))
            if module and not tree.scopes[node].lookup(name):
                found[name] = module
    taken = [*_taken_whole(tree)]
    if taken:
        handed = _handed_on(taken)
        for node in tree.by_type.get(cst.Name, ()) if handed else ():
            assert isinstance(node, cst.Name)
            unread = node.value not in handed or node.value in found or node not in tree.scopes
            if not unread and not tree.bindings(node):
                found[node.value] = handed[node.value]
        for call in tree.calls:
            name = call.func.value if type(call.func) is cst.Name else ""
            unbound = name in LEFT_OUT_CALLS and name not in found
            if unbound and not tree.scopes[call].lookup(name):
                found[name] = LEFT_OUT_CALLS[name]
    return found


def _taken_whole(tree: Tree) -> Iterator[str]:
    """The modules of which a file takes all: ``from utilities import *``."""
    for node in tree.imports:
        if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
            named = dotted_text(node.module) if node.module is not None else None
            yield "." * len(node.relative) + (named or "")


def _handed_on(modules: list[str]) -> Mapping[str, str]:
    """The names that libraries' modules give to who takes all of them, by what they are."""
    return {
        name: f"{home}.{name}"
        for module in modules
        for home, names in STARS.get(module, {}).items()
        for name in names
    }
