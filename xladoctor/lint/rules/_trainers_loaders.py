"""Loaders that a subclass of the Trainer of transformers makes itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._cores import every_core
from xladoctor.lint.rules._handed_over import extends_trainer
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._shares import samplers_of_one
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, Class, Entry, FileModel

_METHODS = frozenset({"get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"})
#: Its methods that make samplers, of all samples: the loader's preparation shares them out
#: (transformers 5.24; before Accelerate, in 4.30, they were samplers of the cores).
_SAMPLERS = frozenset({"_get_train_sampler", "_get_eval_sampler"})
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
        methods = _methods_with(model, call)
        owner = methods[0].owner if methods else None
        if owner is None or not model.is_trainer(owner) or _is_shared(model, call, owner):
            continue
        if any(_may_share(model, one) for one in (call.function, *methods) if one is not None):
            continue
        made = next(_made(model, owner), None)
        if made is not None:
            yield call, *made
        elif not _is_made(model, owner) and (entry := every_core(model, call.node)) is not None:
            yield call, model, entry  # a copy of the loop, which asks for the cores itself


def _methods_with(model: FileModel, call: CallSite) -> Sequence[Function]:
    """The methods, which a Trainer asks for its loaders, that alone make a loader."""
    function = call.function
    if function is None or function.name in _METHODS:
        return [function] if function is not None else []
    callers = [one.function for one in model.callers(function) if model.is_here(one.node)]
    asked = [one for one in callers if one is not None and one.name in _METHODS]
    return asked if len(asked) == len(model.callers(function)) else []


def _may_share(model: FileModel, function: Function) -> bool:
    """Whether a function hands its loader to what shares samples out, or asks for cores."""
    inside = model.calls_in(function.node)
    if any(one.method in {"prepare", "per_device_loader"} for one in inside):
        return True
    named = (part.value for part in walk(function.node) if isinstance(part, cst.Name))
    return any(map(_SHARES.search, named))


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


def _is_shared(model: FileModel, call: CallSite, owner: Class) -> bool:
    """Whether a loader may get a part of the samples."""
    if call.has_star or "batch_sampler" in call.keywords or len(call.positional) > 1:
        return True
    sampler = call.keywords.get("sampler")
    if sampler is None or model.literal(sampler) is None:
        return _streams(model, call)
    return not _is_of_all(model, sampler, owner)


def _is_of_all(model: FileModel, sampler: cst.BaseExpression, owner: Class) -> bool:
    """Whether a sampler shares nothing out, whichever it is; also one that the Trainer makes."""
    if samplers_of_one(model, sampler) is not None:
        return True
    made = sources(model, sampler) or ()
    return bool(made) and all(_is_made_of_all(model, one, owner) for one in made)


def _is_made_of_all(model: FileModel, made: cst.BaseExpression, owner: Class) -> bool:
    """Whether an expression makes a sampler that shares nothing out, or none."""
    if not isinstance(made, cst.Call):
        return model.literal(made) is None
    call = model.call(made)
    if call.method not in _SAMPLERS or call.receiver is None:
        return samplers_of_one(model, made) is not None
    if isinstance(call.target, Function):
        inside = [*returned(call.target)]
        return bool(inside) and all(_is_of_all(model, one, owner) for one in inside)
    own = model.is_super(call.receiver) or is_name(call.receiver, "self")
    return own and extends_trainer(model, owner)


def _streams(model: FileModel, call: CallSite) -> bool:
    """Whether the dataset may be one core's part already."""
    dataset = call.argument(0, "dataset")
    return dataset is None or model.value(dataset).local or model.value(dataset).kind is Kind.LOADER
