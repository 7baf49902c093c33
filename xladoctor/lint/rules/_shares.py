"""Shares of the data: samplers that have none, and what a loop takes by the core's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rules._sources import gone_over, sources
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model import CallSite, FileModel, Loop

#: Samplers that know nothing of the other cores, and the packages that they are of.
_OF_ONE = frozenset(
    {
        *("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler"),
        "LengthGroupedSampler",
    }
)
_PACKAGES = ("torch.utils.data.", "transformers.")
#: Words of what shares data out among the cores, or draws it.
SHARES = frozenset(
    {
        *("shard", "shards", "sharded", "rank", "ranks", "ordinal", "worker", "workers", "world"),
        *("replica", "replicas", "core", "cores", "process", "islice", "part"),
        *("random", "rng", "randint", "rand", "randperm", "shuffle", "shuffled"),
        *("choice", "choices", "sample", "sampler", "seed", "generator"),
    }
)
#: What brings shares to one length, or cuts the rest off.
_EVENS = (cst.FloorDivide, cst.Modulo)
_DEPTH = 3


def says_any(nodes: Iterable[cst.CSTNode], of: AbstractSet[str]) -> bool:
    """Whether a name in some nodes has one of some words."""
    parts = (part for node in nodes for part in walk(node))
    return any(isinstance(x, cst.Name) and not words(x.value).isdisjoint(of) for x in parts)


def samplers_of_one(model: FileModel, sampler: cst.BaseExpression) -> list[CallSite] | None:
    """The calls that make a sampler of a library's which shares nothing out, whichever it is.

    Args:
        model: The file.
        sampler: What a loader is given.

    Returns:
        The calls; None if it may be something else, such as a ``DistributedSampler``.
    """
    made = sources(model, sampler) or []
    calls = [model.call(one) for one in made if isinstance(one, cst.Call)]
    if not calls or len(calls) < len(made):
        return None
    return calls if all(_is_of_one(call.name or "") for call in calls) else None


def _is_of_one(name: str) -> bool:
    return name.startswith(_PACKAGES) and name.rpartition(".")[2] in _OF_ONE


def every_nth(model: FileModel, loop: Loop) -> cst.BaseExpression | None:
    """``data[rank::world]``, ``range(rank, n, world)``: what each core goes over, turn by turn.

    Unless some line on the way divides the length, and so may have made it one of whole rounds.

    Args:
        model: The file.
        loop: A loop of which each turn is a step.

    Returns:
        The expression; None if the loop goes over something else.
    """
    if loop.over is None:
        return None
    if any(isinstance(part, cst.Break) for part in walk(loop.node, into_functions=False)):
        return None  # by a count of steps, it may be
    for node in gone_over(model, loop.over):
        start, step, parts = _start_and_step(model, node)
        if start is None or step is None or not _is_number_of_core(model, start):
            continue
        if not any(_is_evened(model, part) for part in parts):
            return node
    return None


def _start_and_step(
    model: FileModel, node: cst.BaseExpression
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None, list[cst.BaseExpression]]:
    """Where a slice or a range begins, how far it goes at once, and what its length comes from."""
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.name == "builtins.range" and len(node.args) == 3:
            start, stop, step = (argument.value for argument in node.args)
            return start, step, [stop]
        if call.name == "itertools.islice" and len(node.args) == 4:
            data, start, _, step = (argument.value for argument in node.args)
            return start, step, [data]
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        cut = node.slice[0].slice
        if isinstance(cut, cst.Slice) and cut.step is not None and cut.lower is not None:
            ends = [] if cut.upper is None else [cut.upper]
            return cut.lower, cut.step, [node.value, *ends]
    return None, None, []


def _is_number_of_core(model: FileModel, node: cst.BaseExpression) -> bool:
    return model.value(node).kind is Kind.CORE_NUMBER


def _is_evened(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Whether a length is divided on the way: ``data[: len(data) // world * world]``."""
    for part in walk(node):
        if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, _EVENS):
            return True
        if isinstance(part, cst.Name | cst.Attribute) and depth:
            made = (one for one in model.assigned_to(part) if one is not node)
            if any(_is_evened(model, one, depth - 1) for one in made):
                return True
    return False
