"""Data sets that pick a sample by chance, whatever index they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules._cores import differs, tells_core, trainer_of_cores
from xladoctor.lint.rules._equal import seeded
from xladoctor.lint.rules._exact import around
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Class, FileModel, Function, Problem

#: Draws on the host of a place, or of a sample itself, to the seed of that library.
_PLACES = {
    "torch.randint": "torch.manual_seed",
    "random.randint": "random.seed",
    "random.randrange": "random.seed",
    "numpy.random.randint": "numpy.random.seed",
    "numpy.random.random_integers": "numpy.random.seed",
}
_SAMPLES = {"random.choice": "random.seed", "numpy.random.choice": "numpy.random.seed"}
#: Functions of libraries that seed torch, NumPy and Python alike.
_SEEDS_ALL = frozenset({"seed_everything", "set_seed"})
#: Who takes one of these seeds the workers itself.
_OF_WORKERS = ("worker_init_fn", "generator")
_WORDS = frozenset({"rank", "ordinal", "worker", "shard", "replica", "seed", "rng", "epoch"})
_GET = "__getitem__"


def samples_by_chance(model: FileModel) -> Iterator[Problem]:
    """``i = np.random.randint(...); return self.data[i : i + n]`` after one seed for all cores.

    A sampler cannot share such samples out, and worker processes are seeded by a number that torch
    draws: the cores get the same ones.
    """
    picked = [
        call
        for owner in model.classes
        for call in _picks(model, owner)
        if not _of_core(model, owner)
    ]
    if not picked or not (model.multi_core or trainer_of_cores(model) is not None):
        return
    if any(word in call.keywords for call in model.calls() for word in _OF_WORKERS):
        return
    seeds = [*seeded(model)]
    if not seeds or any(seed.apart for seed in seeds):
        return
    for call in picked:
        wanted = (_PLACES | _SAMPLES)[call.name or ""]
        seed = next((x.call for x in seeds if x.call.last in _SEEDS_ALL), None)
        own = [(part, x) for part in (model, *model.linked) for x in part.calls(wanted)]
        if any(_differs(part, x) for part, x in own):
            continue
        said = own[0][1] if own else seed
        if said is None:
            continue
        yield model.problem(
            call.node,
            "every core picks the same samples: the dataset draws at random whatever the index, "
            "and all cores have the same seed",
            suggestion="draw with a generator of each core's own: "
            "np.random.default_rng(seed + xr.global_ordinal()), or use the index",
            related=[model.place(said.node, "the same seed")],
        )


def _differs(model: FileModel, seed: CallSite) -> bool:
    """``random.seed(3 + rank)``."""
    given = [one.value for one in seed.node.args]
    return not given or any(differs(model, one) or model.value(one).local for one in given)


def _picks(model: FileModel, owner: Class) -> Iterator[CallSite]:
    """The draws of a data set that never looks at the index which it is given."""
    method = owner.methods.get(_GET)
    if method is None or len(method.parameters) != 2 or _GET not in owner.methods:
        return
    asked = method.parameters[1]
    body = [*walk(method.node.body)]
    if any(isinstance(node, cst.Name) and node.value == asked for node in body):
        return
    for call in model.calls(*_PLACES, *_SAMPLES):
        if call.function is method and (call.name in _SAMPLES or _is_place(model, method, call)):
            yield call


def _is_place(model: FileModel, method: Function, call: CallSite) -> bool:
    """Whether what is drawn is where a sample is taken."""
    lines = (one for one in around(model, call.node) if isinstance(one, cst.Assign))
    bound = next(lines, None)  # also ``int(...)`` and ``torch.randint(n, (1,)).item()``
    targets = (one.target for one in bound.targets) if bound is not None else ()
    names = {one.value for one in targets if isinstance(one, cst.Name)}
    return any(
        (isinstance(part, cst.Name) and part.value in names) or part is call.node
        for node in model.within(method.node.body, cst.Subscript)
        for element in node.slice
        for part in walk(element)
    )


def _of_core(model: FileModel, owner: Class) -> bool:
    """Whether a data set knows its core, or has random numbers of its own."""
    nodes = [
        node
        for node in walk(owner.node.body)
        if not (isinstance(node, cst.Name) and node.value.startswith("rank_zero"))
    ]
    named = {node.value for node in nodes if isinstance(node, cst.Name)}
    return any(words(name) & _WORDS for name in named) or any(
        tells_core(model, node) for node in nodes
    )
