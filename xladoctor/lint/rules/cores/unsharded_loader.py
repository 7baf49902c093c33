"""XLA402: every core iterates over the whole dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Kind, LoopKind
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import indent_of, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, every_core
from xladoctor.lint.rules._fabric import feeds_itself
from xladoctor.lint.rules._idle_samplers import idle_samplers
from xladoctor.lint.rules._loaders import (
    DATA_LOADER,
    SAMPLER,
    batches_of,
    bound_name,
    loops_by_callers,
    loops_over,
    says_evaluation,
)
from xladoctor.lint.rules._model_parallel import divided
from xladoctor.lint.rules._own_loaders import over_all_files
from xladoctor.lint.rules._shares import samplers_of_one
from xladoctor.lint.rules._streams import streamed_by_datasets
from xladoctor.lint.rules._their_part import may_be_a_part, streams
from xladoctor.lint.rules._trainers_loaders import of_each_core

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, Entry, FileModel, Loop, Problem

#: Makers of loaders in other packages, which share the samples out if ``distributed=True``.
_OTHERS = ("timm.data.create_loader", "timm.data.loader.create_loader")


@rule("XLA402")
def unsharded_loader(model: FileModel) -> Iterator[Problem]:
    """Find loaders that run on every core and give each of them all the samples."""
    if not model.is_xla or model.spmd:
        return
    of_trainers = {}
    if "transformers" in model.frameworks:
        of_trainers = {one[0].node: one for one in of_each_core(model)}
        yield from _of_trainers(model, of_trainers.values())
    if (model.led_by and not feeds_itself(model)) or divided(model) is not None:
        return  # cores with parts of one model take the same batches
    yield from _of_files(model)
    yield from _of_idle_samplers(model)
    for call in model.calls(DATA_LOADER, *_OTHERS):
        if call.node in of_trainers or call.has_star or _sampler_shares(model, call):
            continue
        others = call.name in _OTHERS
        if others and "distributed" in call.keywords:
            continue  # it has a sampler of its own then, if it is true
        if (not others and len(call.positional) > 3) or _sharded_dataset(model, call):
            continue
        given = (loop for loop, _ in loops_by_callers(model, call))
        over = loops_over(model, call) or dict.fromkeys(given)
        loops = [loop for loop in over if loop.kind is not LoopKind.OTHER]
        entry = _entry(model, call, loops, known=bool(over))
        alone = (model.master_only(loop.node) is not None for loop in loops)
        if entry is None or (loops and all(alone)):
            continue  # only the master goes over it, and that is XLA418's to tell
        training = any(loop.kind is LoopKind.STEP for loop in loops)
        training = training and not says_evaluation(model, call.node)
        yield model.problem(
            call.node,
            "every core iterates over the whole dataset"
            + (": an epoch does the same work once per core" if training else "")
            + " (device loaders move batches, they do not shard the dataset)",
            suggestion=_advice(model, call),
            related=[
                *entry_places(model, entry),
                *(model.place(loop.node, f"the {loop.kind.value} over it") for loop in loops),
            ],
            fix=None
            if others or call.begun is not None or {"sampler", "batch_sampler"} & {*call.keywords}
            else _fix(model, call),
        )


def _advice(model: FileModel, call: CallSite) -> str:
    if call.name in _OTHERS:
        return "give it distributed=True, with a process group of the backend 'xla'"
    if streamed_by_datasets(model, call):
        return (
            "share the samples out (a stream takes no sampler): datasets.distributed."
            "split_dataset_by_node(dataset, rank=xr.global_ordinal(), world_size=xr.world_size())"
        )
    if _streamed(model, call) is not None:
        return (
            "share the samples out in __iter__ (a stream takes no sampler): itertools.islice("
            "samples, xr.global_ordinal(), None, xr.world_size())"
        )
    return (
        "give sampler=DistributedSampler(dataset, num_replicas=xr.world_size(), "
        "rank=xr.global_ordinal())"
    )


def _streamed(model: FileModel, call: CallSite) -> Class | None:
    """The class of the program whose objects stream, if a loader goes over one."""
    dataset = call.argument(0, "dataset")
    instance = model.value(dataset).instance if dataset is not None else None
    return instance.cls if instance is not None and streams(model, instance.cls) else None


def _of_files(model: FileModel) -> Iterator[Problem]:
    """``Rows("gs://bucket/*.parquet")`` of a class of the program that opens them one by one."""
    for call, loop, entry in over_all_files(model):
        yield model.problem(
            call.node,
            "every core goes over all files in the same order: all of them train on the same "
            "batches",
            suggestion="give each core its own: files[xr.global_ordinal() :: xr.world_size()]",
            related=[
                *entry_places(model, entry),
                model.place(loop.node, f"the {loop.kind.value} over it"),
            ],
        )


def _of_idle_samplers(model: FileModel) -> Iterator[Problem]:
    """``sampler = DistributedSampler(rows, ...)`` that no loader is given."""
    for call, entry in idle_samplers(model):
        yield model.problem(
            call.node,
            "no loader is given this sampler: every core takes the samples as its loader draws "
            "them, and all of them may train on the same batches",
            suggestion="give it to the loader: DataLoader(dataset, ..., sampler=sampler)",
            related=entry_places(model, entry),
        )


def _of_trainers(
    model: FileModel, loaders: Iterable[tuple[CallSite, FileModel, Entry]]
) -> Iterator[Problem]:
    """``def get_train_dataloader(self): return DataLoader(...)`` of a Trainer."""
    for call, home, entry in loaders:
        yield model.problem(
            call.node,
            "the Trainer takes this loader as it is: every core iterates over the whole dataset",
            suggestion="return self.accelerator.prepare(loader), which shares the samples out",
            related=entry_places(home, entry),
        )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """A ``DistributedSampler`` of its own, made before the loader, that shuffles as it did."""
    line, dataset = line_of(model, call.node), call.argument(0, "dataset")
    sampler = spell(model, call.node, SAMPLER)
    cores = spell(model, call.node, "torch_xla.runtime.world_size")
    core = spell(model, call.node, "torch_xla.runtime.global_ordinal")
    loader = bound_name(model, call.node)
    if line is None or not loader or dataset is None or len(call.positional) > 2:
        return None  # the sampler needs a name that goes with the loader's
    if _streamed(model, call) is not None or streamed_by_datasets(model, call):
        return None  # DataLoader raises ValueError
    if sampler is None or cores is None or core is None or model.on_every_core(call.node) is None:
        return None
    stem = loader.removesuffix("loader").removesuffix("data").rstrip("_")
    names = [f"{stem}_{what}" if stem else what for what in ("dataset", "sampler")]
    text = model.tree.text(dataset).strip()
    edits: list[Edit | None] = []
    if isinstance(dataset, cst.Name | cst.Attribute):
        names[0] = text
    else:
        if "\n" in text or model.bindings(names[0], call.node):
            return None
        edits.append(model.replace(dataset, names[0]))
    if model.bindings(names[1], call.node):
        return None
    shuffle = call.keywords.get("shuffle")
    mixes = "False" if shuffle is None else model.tree.text(shuffle).strip()
    given = f"num_replicas={cores[0]}(), rank={core[0]}(), shuffle={mixes}"
    first = "" if names[0] == text else f"{names[0]} = {text}\n{indent_of(model, line)}"
    made = f"{first}{names[1]} = {sampler[0]}({names[0]}, {given})"
    edits.append(model.insert_before(call.node, made))
    if shuffle is None:
        edits.append(model.add_argument(call.node, f"sampler={names[1]}"))
    else:
        argument = call.written_as(shuffle)
        replaced = None if argument is None else model.replace(argument, f"sampler={names[1]}")
        edits.append(replaced)
    imports = dict.fromkeys([*sampler[1], *cores[1], *core[1]])
    if any(edit is None for edit in edits):
        return None
    return model.fix("Share the samples out", *edits, [*imports], safe=False)


def _entry(model: FileModel, call: CallSite, loops: list[Loop], *, known: bool) -> Entry | None:
    for node in (call.node, *(loop.node for loop in loops)):
        entry = every_core(model, node)
        if entry is not None:
            # A loader that no loop of the file uses may be for anything.
            return entry if loops or (not known and _feeds_device(model, call)) else None
    return None


def _feeds_device(model: FileModel, call: CallSite) -> bool:
    """``pl.MpDeviceLoader(loader, device)``, whoever goes over that to train then."""
    if says_evaluation(model, call.node):
        return False  # the master alone may
    name = bound_name(model, call.node)
    return any(
        other.function is call.function
        and model.value(other.node).kind is Kind.DEVICE_LOADER
        and (first := other.argument(0, "loader")) is not None
        and (first is call.node or model.tree.text(first).strip().lower() == name)
        for other in model.calls()
    )


def _sampler_shares(model: FileModel, call: CallSite) -> bool:
    """Whether a sampler may share the samples out, as torch's own for one process do not.

    What draws with replacement is no walk over the dataset: each core may well draw its own.
    """
    sampler = call.keywords.get("sampler")
    if "batch_sampler" in call.keywords:
        batches = batches_of(model, call.keywords["batch_sampler"])
        sampler = None if batches is None else batches.argument(0, "sampler")
        if sampler is None:
            return True
    if sampler is None or model.literal(sampler) is None:
        return False
    made = samplers_of_one(model, sampler)
    return made is None or any(
        "Weighted" in one.last
        or one.has_star
        or not one.keywords.keys() <= {"data_source", "indices", "generator"}
        or any(may_be_a_part(model, given.value) for given in one.arguments)
        for one in made
    )


def _sharded_dataset(model: FileModel, call: CallSite) -> bool:
    """Whether the dataset may hold this core's part only."""
    dataset = call.argument(0, "dataset")
    asked = (guard.written for guard in model.guards(call.node) if guard.inside)
    told = (model.tree.text(test).lower() for test in asked)
    if dataset is None or any("shard" in text for text in told):
        return True  # ``if sharded_by_folder:``
    return may_be_a_part(model, dataset)
