"""Batches that WebDataset makes itself, the last one of which may be smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules._loaders import DATA_LOADER, bound_name, loops_over, says_evaluation
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop

_PACKAGE = "webdataset."
_LOADERS = (DATA_LOADER, "webdataset.WebLoader")
#: Methods behind which there is no last batch, or the batches are put together anew.
_OTHERWISE = frozenset({"repeat", "with_epoch", "unbatched", "ddp_equalize", "slice"})


def short_last_ones(model: FileModel) -> Iterator[CallSite]:
    """``wds.WebDataset(urls).decode().batched(64)`` of a training.

    ``batched(batchsize, collation_fn, partial=True)`` keeps the last batch by default (webdataset
    0.1 to 1.0).
    """
    batched = [*model.methods("batched")]
    if not batched or any(True for _ in model.methods(*_OTHERWISE)):
        return
    for call in batched:
        made = _begun(model, call)
        partial, size = call.argument(2, "partial"), call.argument(0, "batchsize")
        if made is None or call.has_star or "resampled" in made.keywords:
            continue
        if any(one.last == "ResampledShards" for one in model.calls_in(made.node)):
            continue  # shards without an end
        if partial is not None and model.literal(partial) is not True:
            continue
        if size is not None and model.literal(size) != 1 and _trains(model, call):
            yield call


def _begun(model: FileModel, call: CallSite) -> CallSite | None:
    """The call of the package that a row of calls begins with."""
    while isinstance(call.receiver, cst.Call):
        call = model.call(call.receiver)
        if (call.name or "").startswith(_PACKAGE):
            return call
    return None


def _trains(model: FileModel, batched: CallSite) -> bool:
    """Whether a step loop goes over them, or their names say so."""
    if says_evaluation(model, batched.node):
        return False
    loops: list[Loop] = []
    for loader in model.calls(*_LOADERS):
        data = loader.argument(0, "dataset")
        source = the_source(model, data) if data is not None else None
        if source is not None and batched.node in {source, *model.within(source, cst.Call)}:
            loops += loops_over(model, loader)
    if any(loop.kind is LoopKind.STEP for loop in loops):
        return True
    function = batched.function
    named = (bound_name(model, batched.node), "" if function is None else function.name.lower())
    return not loops and any("train" in name for name in named)
