"""Data sets whose samples all have one length, by what makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Words of the names of data sets that pad their samples, or make blocks of them.
_PADS = frozenset(
    [
        "pad", "pads", "padded", "padding", "pack", "packed", "packing", "concat", "concatenated",
        "block", "blocks", "chunk", "chunks", "chunked", "constant", "fixed",
    ]
)  # fmt: skip
#: What the length is called that they are given.
_LENGTH = patterns.lazy(
    r"^(?:max_|model_)?(?:seq|sequence)_?(?:len|length)$|^max_?(?:len|length)$|^block_size$"
    r"|^(?:chunk|pad|pad_to)_?(?:size|length|len)?$|^context_(?:size|len|length)$"
)


def pads_first(model: FileModel, collator: CallSite) -> bool:
    """Whether the samples that a collator gets are padded: ``PaddedDataset(rows, seq_length)``.

    In all loaders that take the collator, whatever lines give them their data.
    """
    given = [
        data
        for call in model.calls()
        for collate in map(call.keywords.get, ("collate_fn", "data_collator"))
        if collate is not None and any(one is collator.node for one in _made(model, collate))
        if (data := call.argument(0, "dataset") or call.keywords.get("train_dataset")) is not None
    ]
    return bool(given) and all(_is_padded(model, one) for one in given)


def _is_padded(model: FileModel, data: cst.BaseExpression) -> bool:
    made = list(_made(model, data))
    return bool(made) and all(
        isinstance(one, cst.Call)
        and words(last_name(one.func)) & _PADS
        and any(_LENGTH.search(last_name(argument.value)) for argument in one.args)
        for one in made
    )


def _made(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a name is given, or the expression itself."""
    if isinstance(node, cst.Name | cst.Attribute):
        yield from model.assigned_to(node)
    else:
        yield node
