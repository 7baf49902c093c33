"""XLA606: the process that feeds the device also reads and decodes the files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._checkpointing import meant_for_xla
from xladoctor.lint.rules._forwarded import forwarded
from xladoctor.lint.rules._given import all_given, argument, given
from xladoctor.lint.rules._handed_over import is_trainer
from xladoctor.lint.rules._loaders import DATA_LOADER, training_loop
from xladoctor.lint.rules._reads import loop_place
from xladoctor.lint.rules._settled import by_default, settled
from xladoctor.lint.rules._slow_samples import DOES, collates, costs, is_augmented
from xladoctor.lint.rules._sources import the_call
from xladoctor.lint.rules._training_arguments import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Loop, Problem
    from xladoctor.lint.rules._slow_samples import Work

#: Calls whose cost does not depend on the one sample that is asked for.
_WHOLE = re.compile(r"^(glob\.i?glob|os\.(listdir|walk|scandir)|pandas\.read_\w+)$")
#: What augments pictures that lie in memory keeps a step waiting from batches of this size on.
_MANY = 64
_WORKERS = "dataloader_num_workers"


@rule("XLA606")
def loader_workers(model: FileModel) -> Iterator[Problem]:
    """Find loaders without workers over datasets that read files, and listings per sample."""
    if not model.is_xla:
        return
    for call in model.calls(DATA_LOADER):
        workers = call.argument(5, "num_workers")
        if call.has_star or (workers is not None and {*settled(model, workers)} != {0}):
            continue
        loop = _trained_with(model, call)
        work = _work(model, call) if loop is not None else None
        if loop is not None and work is not None:
            yield _problem(model, call, work, loop, _advice(model, call))
    yield from _forwarded(model)
    yield from _of_trainers(model)
    for function in _item_methods(model):
        for call in model.calls_of(function):
            if _WHOLE.match(call.name or ""):
                yield model.problem(
                    call.node,
                    "__getitem__ does this for every single sample, however small: the loader "
                    "becomes slower than the device",
                    suggestion="do it once, in __init__, and keep the result",
                )


def _forwarded(model: FileModel) -> Iterator[Problem]:
    """``batches(rows, drop_last=True)``, of which ``DataLoader(rows, 8, **more)`` is made."""
    for one in forwarded(model):
        workers = one.made.argument(5, "num_workers") or one.settings.get("num_workers")
        work = costs(model, one.dataset) if one.dataset is not None else None
        if work is None or is_augmented(work):
            continue
        if workers is None or {*settled(model, workers)} == {0}:
            advice = "give num_workers=4, persistent_workers=True, which are handed on"
            yield _problem(model, one.call, work, one.loop, advice)


def _problem(model: FileModel, call: CallSite, work: Work, loop: Loop, advice: str) -> Problem:
    return model.problem(
        call.node,
        f"without num_workers the process that feeds the device {DOES[work[1]]} itself, one after "
        "the other: the device waits for it",
        suggestion=advice,
        related=[model.place(*work), loop_place(model, loop)],
    )


def _work(model: FileModel, loader: CallSite) -> Work | None:
    """What a loader's data set, or what makes its batches, does for each sample."""
    dataset, collate = loader.argument(0, "dataset"), loader.argument(6, "collate_fn")
    work = costs(model, dataset) if dataset is not None else None
    if work is not None and is_augmented(work) and not _is_large(model, loader):
        work = None
    return collates(model, collate) if work is None and collate is not None else work


def _is_large(model: FileModel, loader: CallSite) -> bool:
    size = loader.argument(1, "batch_size")
    sizes = by_default(model, size) if size is not None else ()
    return any(isinstance(one, int) and one >= _MANY for one in sizes)


def _advice(model: FileModel, loader: CallSite) -> str:
    dataset = loader.argument(0, "dataset")
    instance = model.value(dataset).instance if dataset is not None else None
    if instance is not None and model.method(instance.cls, "__getitem__") is None:
        return (
            "num_workers=1, persistent_workers=True (each of several would give all samples, "
            "unless __iter__ asks torch.utils.data.get_worker_info() for its part)"
        )
    return "num_workers=4, persistent_workers=True (and more, if the machine has the processors)"


def _of_trainers(model: FileModel) -> Iterator[Problem]:
    """``Trainer(args=TrainingArguments(...), train_dataset=rows)``, which makes its loaders."""
    for call in model.calls():
        if not is_trainer(model, call) and not _is_like_one(call):
            continue
        settings, named = argument(model, call, 1, "args"), given(model, call)
        made = the_call(model, settings) if settings is not None else None
        if made is None or not ARGUMENTS.search(made.name or "") or not all_given(model, made):
            continue
        workers = given(model, made).get(_WORKERS)
        if workers is not None and {*settled(model, workers)} != {0}:
            continue
        dataset, collate = named.get("train_dataset"), named.get("data_collator")
        work = costs(model, dataset) if dataset is not None else None
        if work is None and collate is not None and dataset is not None:
            work = collates(model, collate)
        if work is None or is_augmented(work) or not meant_for_xla(model, made.node):
            continue
        yield model.problem(
            made.node.func,
            f"without {_WORKERS} the process that feeds the device {DOES[work[1]]} itself, one "
            "after the other: the device waits for it",
            suggestion=f"{_WORKERS}=4, dataloader_persistent_workers=True",
            related=[model.place(*work), model.place(call.node, "the Trainer")],
        )


def _is_like_one(call: CallSite) -> bool:
    """``OwnTrainer(model=net, args=..., train_dataset=rows)`` of a file that nobody has read."""
    is_unread = call.target is None and "Trainer" in call.last
    return is_unread and {"args", "train_dataset"} <= call.keywords.keys()


def _trained_with(model: FileModel, call: CallSite) -> Loop | None:
    """The step loop over a loader, here or in a linked file."""
    return next(filter(None, (training_loop(one, call) for one in (model, *model.linked))), None)


def _item_methods(model: FileModel) -> Iterator[Function]:
    for cls in model.classes:
        if "__getitem__" in cls.methods and any(
            base.endswith("Dataset") for base in model.bases(cls)
        ):
            yield cls.methods["__getitem__"]
