"""Batches that a step makes of texts and pictures, beside those that the device loader brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import LoopKind
from xladoctor.lint.reading import processed
from xladoctor.lint.rules._reads import costly_loop, loop_place
from xladoctor.lint.rules._tokenized import goes_to_device, tokenizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


def made_in_step(model: FileModel) -> Iterator[Problem]:
    """``tokenizer(texts, return_tensors="pt").to(device)`` in steps over a device loader."""
    for call in model.calls():
        if "return_tensors" not in call.keywords:
            continue
        pictures = bool(processed(call))
        loop = costly_loop(model, call.node) if pictures or tokenizes(model, call) else None
        if loop is None or loop.kind is not LoopKind.STEP or not loop.iterates.kind.uploads:
            continue
        if not goes_to_device(model, call.node):
            continue
        what = "pictures are preprocessed" if pictures else "texts are tokenized"
        yield model.problem(
            call.node,
            f"{what} in the training step itself and uploaded there: the device waits for both, "
            "on every step",
            suggestion="do it in the Dataset or in collate_fn: workers of the loader prepare the "
            "next batches meanwhile, and the device loader uploads them",
            related=[loop_place(model, loop)],
        )
