"""Loaders that a subclass of the Trainer of transformers makes itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules._cores import every_core
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._shares import samplers_of_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Class, Entry, FileModel

_METHODS = frozenset({"get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"})
_SHARES = re.compile(
    r"shard|distributed|rank|ordinal|world_size|num_replicas|split_by_node", re.IGNORECASE
)


def of_each_core(model: FileModel) -> Iterator[tuple[CallSite, FileModel, Entry]]:
    """Loaders that a Trainer takes as they are, with all samples for every core.

    The Trainer's own method prepares its loader, which shares the samples out; what a method of
    the program gives back in its place does not.

    Yields:
        The loader, the file in which the Trainer is made, and where the cores begin there.
    """
    for call in model.calls(DATA_LOADER):
        function = call.function
        owner = function.owner if function is not None else None
        if function is None or owner is None or function.name not in _METHODS:
            continue
        if not model.is_trainer(owner) or _is_shared(model, call):
            continue
        inside = model.calls_in(function.node)
        if any(one.method in {"prepare", "per_device_loader"} for one in inside):
            continue
        named = (part.value for part in walk(function.node) if isinstance(part, cst.Name))
        if any(map(_SHARES.search, named)):
            continue
        made = next(_made(model, owner), None)
        if made is not None:
            yield call, *made
        elif not _is_made(model, owner) and (entry := every_core(model, call.node)) is not None:
            yield call, model, entry  # a copy of the loop, which asks for the cores itself


def _made(model: FileModel, owner: Class) -> Iterator[tuple[FileModel, Entry]]:
    """Where every core makes an object of a class."""
    for part in (model, *model.linked):
        for call in part.calls():
            entry = every_core(part, call.node) if call.target is owner else None
            if entry is not None:
                yield part, entry


def _is_made(model: FileModel, owner: Class) -> bool:
    """Whether an object of a class is made anywhere in sight."""
    return any(call.target is owner for part in (model, *model.linked) for call in part.calls())


def _is_shared(model: FileModel, call: CallSite) -> bool:
    """Whether a loader may get a part of the samples."""
    if call.has_star or "batch_sampler" in call.keywords or len(call.positional) > 1:
        return True
    sampler = call.keywords.get("sampler")
    if sampler is None or model.literal(sampler) is None:
        return _streams(model, call)
    return samplers_of_one(model, sampler) is None


def _streams(model: FileModel, call: CallSite) -> bool:
    """Whether the dataset may be one core's part already."""
    dataset = call.argument(0, "dataset")
    return dataset is None or model.value(dataset).local or model.value(dataset).kind is Kind.LOADER
