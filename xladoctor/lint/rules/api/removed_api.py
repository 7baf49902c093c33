"""XLA801: a name that the torch_xla to lint for no longer has, or never had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._api import (
    import_fix,
    imported,
    never_reached,
    replacement_fix,
    tolerated,
    uses,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.rules._api import Entry


@rule("XLA801")
def removed_api(model: FileModel) -> Iterator[Problem]:
    """Find names that were removed; an import that fails is reported once, not at every use."""
    reported: set[str] = set()
    for alias, dotted, entry in imported(model):
        if not entry.removed(model.target):
            continue
        reported.add(dotted)
        if tolerated(model, alias):
            continue
        known = entry.replaced(model.target) or entry.always is not None
        fix = import_fix(model, alias, dotted, entry) if known else None
        yield model.problem(
            alias, _message(dotted, entry), suggestion=_advice(dotted, entry), fix=fix
        )
    for node, dotted, entry in uses(model):
        dead = never_reached(model, node, entry)
        if not entry.removed(model.target) or (tolerated(model, node) and not dead):
            continue
        if any(dotted.startswith(name + ".") for name in reported):
            continue
        if dotted in reported and isinstance(node, cst.Name):
            continue  # by the name that the import brings; ``xm.get_ordinal`` is another way
        known = entry.replaced(model.target) or entry.always is not None
        fix = replacement_fix(model, node, entry) if known else None
        message = _message(dotted, entry)
        if dead:
            message = (
                f"{entry.old} does not exist, and never did: hasattr is false, this never runs"
            )
        yield model.problem(node, message, suggestion=_advice(dotted, entry), fix=fix)


def _message(dotted: str, entry: Entry) -> str:
    what = dotted if entry.kind == "module" or dotted == entry.old else entry.old
    if entry.never:
        return f"{what} does not exist, and never did: this fails when it runs"
    if entry.old == "torch_xla_py":
        return f"{what} is not part of torch_xla any more: the import fails"
    return f"{what} was removed in torch_xla {entry.removed_in}: this fails when it runs"


def _advice(dotted: str, entry: Entry) -> str:
    if entry.new is None:
        return entry.advice
    if entry.kind != "module" or dotted == entry.old:
        return f"use {entry.new}"
    name = dotted.removeprefix(entry.old + ".")
    return f"use {entry.new}.{name}" if name in entry.names else f"look for it in {entry.new}"
