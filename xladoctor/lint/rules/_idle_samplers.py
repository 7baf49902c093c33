"""Samplers for several cores that no loader is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules._cores import every_core
from xladoctor.lint.rules._exact import is_global, reads
from xladoctor.lint.rules._loaders import SAMPLER
from xladoctor.lint.rules._sharded import bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Entry, FileModel

_LEN = "builtins.len"


def idle_samplers(model: FileModel) -> Iterator[tuple[CallSite, Entry]]:
    """``sampler = DistributedSampler(rows, ...)`` that is told the epoch, and nothing else.

    Only in functions that take steps themselves: another file's loader may be given it later.
    """
    looping = (loop.function for loop in model.loops if loop.kind is LoopKind.STEP)
    steps = {one for function in looping if function is not None for one in function.around}
    for call in model.calls(SAMPLER):
        target = bound(model, call)
        if not isinstance(target, cst.Name) or call.function is None or call.function not in steps:
            continue
        entry = every_core(model, call.node)
        if entry is None or is_global(call.function, target.value):
            continue
        if all(_tells_it(model, use) for use in reads(model, target)):
            yield call, entry


def _tells_it(model: FileModel, use: cst.Name) -> bool:
    """``sampler.set_epoch(epoch)`` and ``len(sampler)``, which hand it to nobody."""
    parent = model.parent(use)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in {"set_epoch", "num_samples", "total_size"}
    call = model.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and model.name(call.func) == _LEN
