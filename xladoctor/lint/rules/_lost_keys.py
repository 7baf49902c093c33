"""Keys that the dictionaries of torch_xla's functions no longer have."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model.dotted import text_of
from xladoctor.lint.rules._api import version
from xladoctor.lint.rules._sources import the_call
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem


@functools.cache
def _lost() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    return {(row["of"], row["old"]): row for row in catalogue.table("api")["key"]}


def lost_keys(model: FileModel) -> Iterator[Problem]:
    """``xm.get_memory_info(device)["kb_total"]``: KeyError.

    Not in a program that knows what took its place, nor one that looks whether it is there.
    """
    known = {old: row for (_, old), row in _lost().items() if old in model.text}
    for node in model.nodes(cst.Subscript) if known else ():
        assert isinstance(node, cst.Subscript)
        key = _key(node)
        if key not in known or any(one in model.text for one in known[key]["new"]):
            continue
        made = the_call(model, node.value)
        row = _lost().get((made.name or "", key)) if made is not None else None
        if row is None or model.target < version(row["removed_in"]):
            continue
        if tolerated(model, node) or _is_asked(model, node, key):
            continue
        function = row["of"].rpartition(".")[2]
        yield model.problem(
            node,
            f'since torch_xla {row["removed_in"]}, what {function} returns has no "{key}": this '
            "raises KeyError",
            suggestion=row["advice"],
        )


def _key(node: cst.Subscript) -> str:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return (text_of(index.value) or "") if isinstance(index, cst.Index) else ""


def _is_asked(model: FileModel, node: cst.CSTNode, key: str) -> bool:
    """Whether a condition around a node names the key: ``if "kb_total" in info:``."""
    return any(
        isinstance(one, cst.If | cst.IfExp)
        and any(text_of(part) == key for part in model.within(one.test, cst.SimpleString))
        for one in model.tree.ancestors(node)
    )
