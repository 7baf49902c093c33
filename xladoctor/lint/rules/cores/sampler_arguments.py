"""XLA409: a ``DistributedSampler`` that does not know the cores, or stands beside ``shuffle``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.model.dotted import string
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core
from xladoctor.lint.rules._environment import settings
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._loaders import DATA_LOADER, SAMPLER
from xladoctor.lint.rules._sources import sources
from xladoctor.lint.rules._their_part import may_be_a_part
from xladoctor.lint.rules._worker_arguments import without_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, Entry, FileModel, Problem

_SPAWN = "torch_xla.distributed.xla_multiprocessing.spawn"
#: Variables that torchrun sets for each of its processes.
_RANKS = frozenset({"LOCAL_RANK", "RANK"})


@rule("XLA409")
def sampler_arguments(model: FileModel) -> Iterator[Problem]:
    """Find samplers and loaders whose arguments raise, or give all cores the same samples."""
    if not model.is_xla or model.led_by:
        return
    starts = (part.methods("init_process_group") for part in (model, *model.linked))
    if not any(True for calls in starts for _ in calls):
        for call in model.calls(SAMPLER):
            if call.has_star or len(call.positional) > 1:
                continue
            if {"num_replicas", "rank"} & set(call.keywords):
                continue
            if any(guard.runs in {OnXla.NO, OnXla.MAYBE} for guard in model.guards(call.node)):
                continue
            yield model.problem(
                call.node,
                "without num_replicas and rank this sampler asks torch.distributed, which is not "
                "initialized: it raises ValueError",
                suggestion="DistributedSampler(dataset, num_replicas=xr.world_size(), "
                "rank=xr.global_ordinal())",
                fix=_fix(model, call),
            )
    yield from _of_one_core(model)
    yield from without_workers(model)
    for call in model.calls(DATA_LOADER):
        shuffle = given_true(model, call, "shuffle")
        if shuffle is None or not {"sampler", "batch_sampler"} & set(call.keywords):
            continue
        given = call.keywords.get("sampler", call.keywords.get("batch_sampler"))
        if given is None or model.value(given).origin is None:
            continue  # may be None
        yield model.problem(
            shuffle,
            "sampler and shuffle=True exclude each other: DataLoader raises ValueError",
            suggestion="leave shuffle out of the loader, and shuffle in the sampler",
            fix=model.fix("Remove shuffle", model.remove_argument(call.node, shuffle), safe=True),
        )


def _of_one_core(model: FileModel) -> Iterator[Problem]:
    """``rank=0``, or ``rank=int(os.environ.get("LOCAL_RANK", 0))`` under ``xmp.spawn``."""
    for call in model.calls(SAMPLER):
        rank = call.argument(2, "rank")
        entry = every_core(model, call.node) if rank is not None else None
        if rank is None or entry is None:
            continue
        if _has_its_own(model, call):
            continue
        read = _from_torchrun(model, rank, entry)
        if read is None and not _is_zero(model, rank):
            continue
        yield model.problem(
            rank,
            "this is 0 on every core"
            + (" (xmp.spawn sets no such variable)" if read is not None else "")
            + ": all of them process the same share of the data, and no core the other shares",
            suggestion="rank=xr.global_ordinal()",
            related=entry_places(model, entry)
            + ([] if read is None else [model.place(read, "what torchrun would set")]),
        )


def _has_its_own(model: FileModel, call: CallSite) -> bool:
    """``num_replicas=1`` over samples of this core alone: ``Rows(read(part=rank))``."""
    replicas, dataset = call.argument(1, "num_replicas"), call.argument(0, "dataset")
    return (
        replicas is not None
        and dataset is not None
        and model.literal(replicas) == 1
        and may_be_a_part(model, dataset)
    )


def _is_zero(model: FileModel, rank: cst.BaseExpression) -> bool:
    given = model.literal(rank)
    return given == 0 and not isinstance(given, bool)


def _from_torchrun(
    model: FileModel, rank: cst.BaseExpression, entry: Entry
) -> cst.BaseExpression | None:
    """What reads the rank from a variable that only torchrun sets, on cores that are spawned."""
    started = entry.call if isinstance(entry.call, cst.Call) else None
    if started is None or model.call(started).name != _SPAWN:
        return None
    made = sources(model, rank)
    if made is None or len(made) != 1:
        return None
    for part in walk(made[0]):
        if isinstance(part, cst.SimpleString) and string(part) in _RANKS:
            sets = (name for one in (model, *model.linked) for name, _, _ in settings(one))
            return None if any(name in _RANKS for name in sets) else made[0]
    return None


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """Tell the sampler the cores, where they run."""
    cores = spell(model, call.node, "torch_xla.runtime.world_size")
    core = spell(model, call.node, "torch_xla.runtime.global_ordinal")
    if cores is None or core is None or model.on_every_core(call.node) is None:
        return None
    edit = model.add_argument(call.node, f"num_replicas={cores[0]}(), rank={core[0]}()")
    return model.fix("Give it the cores", edit, [*dict.fromkeys([*cores[1], *core[1]])], safe=True)
