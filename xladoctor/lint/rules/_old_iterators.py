"""``batches.next()`` of an iterator over a ``DataLoader``, a spelling of Python 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: The first torch whose iterators have ``__next__`` alone.
_SINCE = (1, 13)


def old_iterators(model: FileModel) -> Iterator[Problem]:
    """``iter(loader).next()``; iterators of device loaders still have the method."""
    if model.target < _SINCE or not model.is_xla:
        return
    for call in model.methods("next"):
        if call.node.args or call.receiver is None or not _goes_over(model, call.receiver):
            continue
        if tolerated(model, call.node):
            continue
        written = f"next({model.tree.text(call.receiver).strip()})"
        yield model.problem(
            call.node,
            "iterators of a DataLoader have no next() since torch 1.13: this raises AttributeError",
            suggestion=written,
            fix=model.fix(f"Write {written}", model.replace(call.node, written), safe=True),
        )


def _goes_over(model: FileModel, receiver: cst.BaseExpression) -> bool:
    """Whether something is certainly a loader of torch, or an iterator over one."""
    value = model.value(receiver)
    made = value.origin
    return (
        value.kind is Kind.LOADER
        and value.certain
        and not value.roads
        and isinstance(made, cst.Call)
        and model.name(made.func) == DATA_LOADER
    )
