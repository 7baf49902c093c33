"""XLA448: each core draws its own split of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import (
    differs,
    entry_places,
    every_core,
    is_forked,
    trainer_of_cores,
)
from xladoctor.lint.rules._equal import last_seed, seeded
from xladoctor.lint.rules._exact import reads
from xladoctor.lint.rules._lightning import COMMAND_LINES
from xladoctor.lint.rules._loaders import SAMPLER
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What splits by itself, and the argument that gives it a seed.
_SPLITS = {
    "torch.utils.data.random_split": (2, "generator"),
    "torch.utils.data.dataset.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (None, "random_state"),
}
#: The method of ``datasets.Dataset`` that does the same with NumPy's numbers (datasets 5.2,
#: arrow_dataset.py: the seed is one of ``np.random.get_state()``).
_METHOD, _PACKAGE, _SEED = "train_test_split", "datasets", (4, "seed")
#: What draws an order of places, or brings a list into one.
_ORDERS = ("torch.randperm", "numpy.random.permutation")
_SHUFFLES = ("numpy.random.shuffle", "random.shuffle")
_SEEDS = frozenset({"seed", "seeds", "seeding", "deterministic", "determinism"})
_FORKED = " (forked processes draw alike, but the two cores of one on TPU v2 and v3 do not)"
#: Whose numbers calls of these modules seed alone.
_ALONE = {
    "torch.": "torch.",
    "torch_xla.": "torch.",
    "numpy.random.": "numpy.",
    "random.": "random.",
}


@rule("XLA448")
def sampler_coverage(model: FileModel) -> Iterator[Problem]:
    """Find splits into training and test data that every core draws without a common seed."""
    if model.spmd or not model.is_xla or not (model.multi_core or _in_lightning(model)):
        return
    yield from _samplers(model)
    for call in (*model.calls(*_SPLITS, *_ORDERS, *_SHUFFLES), *_of_datasets(model)):
        if not _is_drawn(model, call) or model.hot_loop(call.node) is not None:
            continue
        entry = every_core(model, call.node)
        if entry is None or _is_alike(model, call):
            continue
        yield model.problem(
            call.node,
            "every core draws a different split: samples that one core tests on are trained on "
            "by others; some are trained on twice, some not at all"
            + (_FORKED if is_forked(model, entry) else ""),
            suggestion="give all cores one seed: generator=torch.Generator().manual_seed(0) "
            "(random_state=0 of sklearn's, seed=0 of datasets')",
            related=entry_places(model, entry),
        )


def _in_lightning(model: FileModel) -> bool:
    """Whether a Trainer of Lightning starts several cores; its command line seeds them all."""
    trainer = trainer_of_cores(model) if "lightning" in model.frameworks else None
    if trainer is None or trainer.call is None:
        return False
    return trainer.call.name not in COMMAND_LINES


def _samplers(model: FileModel) -> Iterator[Problem]:
    """``DistributedSampler(data, seed=rank)``: each core's share is of another order."""
    for call in model.calls(SAMPLER):
        seed, shuffle = call.argument(4, "seed"), call.argument(3, "shuffle")
        if seed is None or (shuffle is not None and model.literal(shuffle) is False):
            continue
        if differs(model, seed) or model.value(seed).local:
            yield model.problem(
                seed,
                "every core shuffles with a seed of its own and takes its share of that order: "
                "some samples come to several cores in an epoch, others to none",
                suggestion="give all cores one seed",
            )


def _of_datasets(model: FileModel) -> Iterator[CallSite]:
    """``data["train"].train_test_split(0.1)`` of a data set of Hugging Face."""
    if any(name.partition(".")[0] == _PACKAGE for name in model.names.imported()):
        yield from (
            call
            for call in model.methods(_METHOD)
            if call.name not in _SPLITS and call.target is None
        )


def _is_drawn(model: FileModel, call: CallSite) -> bool:
    """Whether a call draws a split: by itself, or as an order of which parts are taken."""
    if call.has_star or "generator" in call.keywords:
        return False
    if call.name in _SPLITS or call.method == _METHOD:
        given = call.argument(*_SPLITS.get(call.name or "", _SEED))
        shuffles = call.keywords.get("shuffle")
        if shuffles is not None and model.literal(shuffles) is False:
            return False
        return given is None or model.literal(given) is None
    name = _shuffled(model, call)
    uses = reads(model, name) if name is not None else ()
    cut = (model.parent(use) for use in uses)
    ends = {
        (element.slice.lower is None, element.slice.upper is None)
        for part in cut
        if isinstance(part, cst.Subscript)
        for element in part.slice
        if isinstance(element.slice, cst.Slice)
    }
    return {(True, False), (False, True)} <= ends  # ``order[:n]`` and ``order[n:]``


def _shuffled(model: FileModel, call: CallSite) -> cst.Name | None:
    """The name of what a call brings into another order."""
    if call.name in _SHUFFLES:
        given = call.argument(0)
        return given if isinstance(given, cst.Name) else None
    line: cst.CSTNode | None = call.node
    while isinstance(line, cst.Call | cst.Attribute | cst.Arg):  # ``torch.randperm(n).tolist()``
        line = model.parent(line)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    return target if isinstance(target, cst.Name) else None


def _is_alike(model: FileModel, call: CallSite) -> bool:
    """Whether a seed makes all cores draw the same, as far as anybody can know.

    Of NumPy's and Python's numbers any call that seeds by its name is believed to, but for those
    that seed others alone, or each core by a number of its own.
    """
    name = call.name or ""
    if name.startswith("torch."):
        seed = last_seed(model, call, list(seeded(model)))
        if seed is not None:
            return not seed.apart
        return any(not one.apart for one in seeded(model))
    drawn = "random." if name in _SHUFFLES and name.startswith("random.") else "numpy."
    return any(
        bool(words(one.last) & _SEEDS)
        and _seeds(one) in {drawn, None}
        and not any(differs(part, given.value) for given in one.node.args)
        for part in (model, *model.linked)
        for one in part.calls()
    )


def _seeds(call: CallSite) -> str | None:
    """Whose numbers a call seeds, by the module that it is of; None if that is not known."""
    name = call.name or ""
    return next((whose for module, whose in _ALONE.items() if name.startswith(module)), None)
