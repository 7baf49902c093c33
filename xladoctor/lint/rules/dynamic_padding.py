"""XLA209: batches are padded to their longest sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._reads import costly_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Problem

_COLLATORS = frozenset(
    f"transformers.{name}"
    for name in (
        *(
            "DataCollatorWithPadding",
            "DataCollatorForSeq2Seq",
            "DataCollatorForTokenClassification",
        ),
    )
)
_LONGEST = (True, "longest")


@rule("XLA209")
def dynamic_padding(model: FileModel) -> Iterator[Problem]:
    """Find padding to the longest sample where batches are made."""
    if not model.is_xla:
        return
    collating = set(_collate_functions(model))
    for call in model.calls():
        if call.has_star or "pad_to_multiple_of" in call.keywords:
            continue
        padding = call.keywords.get("padding")
        text = model.literal(padding) if padding is not None else None
        if call.name in _COLLATORS:
            found = padding is None or text in _LONGEST
        elif call.function in collating or costly_loop(model, call.node) is not None:
            found = _tokenizes(call) and text in _LONGEST
        else:
            found = False
        if found:
            yield model.problem(
                call.node,
                "padded to the longest sample, every batch may have another shape: each new length "
                "compiles the whole step again",
                suggestion='padding="max_length" with max_length=, or pad_to_multiple_of=128 for a '
                "few lengths",
            )


def _collate_functions(model: FileModel) -> Iterator[Function]:
    for call in model.calls(DATA_LOADER):
        collate = call.argument(6, "collate_fn")
        function = model.value(collate).function if collate is not None else None
        if function is not None:
            yield function


def _tokenizes(call: CallSite) -> bool:
    name = call.method or getattr(call.node.func, "value", "")
    return isinstance(name, str) and (name.lower().startswith("tok") or name == "pad")
