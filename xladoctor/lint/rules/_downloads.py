"""Data sets of torchvision and torchaudio that download themselves, and on which cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, walk
from xladoctor.lint.rules._cores import asks_for_core, differs
from xladoctor.lint.rules._picture_sets import kinds
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Collection

    from xladoctor.lint.model import CallSite, FileModel

#: What asks whether a file or folder is there.
IS_THERE = frozenset({"exists", "isdir", "isfile", "is_dir", "is_file"})
_DATASETS = ("torchvision.datasets.", "torchaudio.datasets.")


def is_dataset(model: FileModel, call: CallSite) -> bool:
    """Whether what is called is a dataset of torchvision or torchaudio, also by another name.

    ``kind(...)`` of ``kind = CIFAR10 if small else CIFAR100``, ``KINDS[name](...)``,
    ``getattr(datasets, name)(...)`` and classes of the program that inherit from one.
    """
    if isinstance(call.target, Class):
        return _is_kind(model, [call.target])
    made = kinds(model, call)
    return bool(made) and all(
        _is_kind(model, model.value(one).classes) or f"{model.name(one)}.".startswith(_DATASETS)
        for one in made
    )


def _is_kind(model: FileModel, classes: Collection[Class]) -> bool:
    """Whether all of some classes are such datasets, and none asks which core it is on."""
    return bool(classes) and all(
        any(base.startswith(_DATASETS) for base in model.library_bases(one))
        and not asks_for_core(model, one.node)
        for one in classes
    )


def fetches(model: FileModel, download: cst.BaseExpression) -> bool:
    """``download=True``, or ``download=not os.path.exists(root)``: where nothing is there yet."""
    if model.literal(download) is True:
        return True
    asked = sources(model, download) or []
    parts = [part for one in asked for part in walk(one) if isinstance(part, cst.Call)]
    asks = any(model.call(part).last in IS_THERE for part in parts)
    return asks and not differs(model, download)


def fetched_by_master(model: FileModel, download: cst.BaseExpression) -> bool:
    """``download=rank == 0``, ``download=xm.is_master_ordinal()``: the others only open the data.

    torchvision 0.24 raises RuntimeError there ("Dataset not found or corrupted") until all of it
    is unpacked.
    """
    made = sources(model, download) or [download]
    return all(model.value(one).kind is Kind.IS_MASTER for one in made)
