"""What a collective between processes sends to whom, and what each core gets of it."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .hosts import Share
    from .link import Link

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """A collective; equal on all cores that take part in it.

    Attributes:
        kind: "all_reduce", "reduce_scatter", "all_gather", "all_to_all" or "collective_permute".
        inputs: Shape and type of what each core brings.
        groups: The cores that exchange with each other.
        reduce: "sum", "mul", "and", "or", "min" or "max".
        dim: Where results are cut, or put together for a gather.
        into: Where the parts of ``all_to_all`` are put together.
        shards: Into how many parts.
        pairs: From which core to which, for a permutation.
    """

    kind: str
    inputs: tuple[tuple[Shape, Any], ...]
    groups: tuple[tuple[int, ...], ...] = ()
    reduce: str = ""
    dim: int = 0
    into: int = 0
    shards: int = 1
    pairs: tuple[tuple[int, int], ...] = ()

    def result(self, shape: Sequence[int]) -> Shape:
        """The shape of a result, of that of the value."""
        found = list(shape)
        if self.kind == "all_gather" and found:
            found[self.dim] *= self.shards
        elif self.kind == "reduce_scatter":
            found[self.dim] //= self.shards
        elif self.kind == "all_to_all":
            found[self.dim] //= self.shards
            found[self.into] *= self.shards
        return tuple(found)

    def group_of(self, core: int) -> int | None:
        """Which group a core belongs to; None if to none."""
        return next((at for at, group in enumerate(self.groups) if core in group), None)


Values = dict[int, list[Any]]


def carry_out(spec: Spec, brought: Values, share: Share, link: Link, tag: int) -> Values:
    """Exchange with the other processes.

    Args:
        spec: The collective.
        brought: Core of this process to what it brings.
        share: Which cores those are.
        link: To the other processes.
        tag: See :meth:`Link.swap`.

    Returns:
        Core of this process to what it gets.
    """
    reduces = spec.kind in ("all_reduce", "reduce_scatter")
    return (_reduced if reduces else _moved)(spec, brought, share, link, tag)


# -- reductions: one part from each process ---------------------------------------------------
def _reduced(spec: Spec, brought: Values, share: Share, link: Link, tag: int) -> Values:
    ours = [at for at, group in enumerate(spec.groups) if any(core in brought for core in group)]
    parts = {
        at: _reduce(spec, [brought[core] for core in spec.groups[at] if core in brought])
        for at in ours
    }
    shared = {
        rank: [at for at in ours if _ranks(spec.groups[at], share) & {rank}]
        for rank in range(share.processes)
        if rank != share.rank
    }
    outgoing = {
        rank: _packed(part for at in groups for part in parts[at])
        for rank, groups in shared.items()
        if groups
    }
    sizes = {rank: len(words) for rank, words in outgoing.items()}
    taken = link.swap(tag, outgoing, sizes)
    theirs: dict[tuple[int, int], list[Any]] = {}
    for rank, words in taken.items():
        for at in shared[rank]:
            words, theirs[rank, at] = _unpacked(words, parts[at])
    totals = {}
    for at in ours:
        by_rank = [
            parts[at] if rank == share.rank else theirs[rank, at]
            for rank in sorted(_ranks(spec.groups[at], share))
        ]
        totals[at] = _reduce(spec, by_rank)
    return {core: _own_part(spec, core, values, totals) for core, values in brought.items()}


def _own_part(
    spec: Spec, core: int, values: list[Any], totals: Mapping[int, list[Any]]
) -> list[Any]:
    at = spec.group_of(core)
    found = totals[at] if at is not None else values
    if spec.kind == "reduce_scatter" and at is not None:
        mine = spec.groups[at].index(core)
        found = [one.chunk(spec.shards, spec.dim)[mine] for one in found]
    return found


def _reduce(spec: Spec, values: Sequence[list[Any]]) -> list[Any]:
    """Reduce the values of several cores or processes; small floats in float32."""
    function = _FUNCTIONS[spec.reduce]
    return [functools.reduce(function, map(_wide, each)) for each in zip(*values, strict=True)]


def _wide(value: Any) -> Any:
    import torch

    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def _minimum(one: Any, other: Any) -> Any:
    return one.minimum(other)


def _maximum(one: Any, other: Any) -> Any:
    return one.maximum(other)


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "min": _minimum,
    "max": _maximum,
}


# -- all others: what cores bring is moved ----------------------------------------------------
def _moved(spec: Spec, brought: Values, share: Share, link: Link, tag: int) -> Values:
    import torch

    others = [rank for rank in range(share.processes) if rank != share.rank]
    mine = sorted(brought)
    sent = {rank: [core for core in mine if _needed(spec, core, rank, share)] for rank in others}
    come = {
        rank: [
            core
            for core in range(rank * share.cores, (rank + 1) * share.cores)
            if _needed(spec, core, share.rank, share)
        ]
        for rank in others
    }
    outgoing = {
        rank: _packed(value for core in cores for value in brought[core])
        for rank, cores in sent.items()
        if cores
    }
    size = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in spec.inputs)
    taken = link.swap(
        tag, outgoing, {rank: size * len(cores) for rank, cores in come.items() if cores}
    )
    values = dict(brought)
    for rank, words in taken.items():
        for core in come[rank]:
            words, values[core] = _unpacked(words, brought[mine[0]])
    return {core: _gets(spec, core, values) for core in mine}


def _needed(spec: Spec, core: int, rank: int, share: Share) -> bool:
    """Whether a process needs what a core brings."""
    cores = range(rank * share.cores, (rank + 1) * share.cores)
    if spec.kind == "collective_permute":
        return any(source == core and target in cores for source, target in spec.pairs)
    at = spec.group_of(core)
    return at is not None and any(one in cores for one in spec.groups[at])


def _gets(spec: Spec, core: int, values: Values) -> list[Any]:
    """What a core gets."""
    import torch

    if spec.kind == "collective_permute":
        source = next((one for one, target in spec.pairs if target == core), None)
        if source is None:
            return [torch.zeros_like(value) for value in values[core]]
        return values[source]
    at = spec.group_of(core)
    group = spec.groups[at] if at is not None else (core,)
    columns = zip(*(values[one] for one in group), strict=True)
    if spec.kind == "all_gather":
        return [torch.cat(column, spec.dim) for column in columns]
    mine = group.index(core)
    return [
        torch.cat([one.chunk(spec.shards, spec.dim)[mine] for one in column], spec.into)
        for column in columns
    ]


# -- bytes ------------------------------------------------------------------------------------
def _ranks(group: Iterable[int], share: Share) -> set[int]:
    return {core // share.cores for core in group}


def _packed(values: Iterable[Any]) -> Any:
    """Tensors as one row of bytes."""
    import torch

    rows = [value.contiguous().reshape(-1).view(torch.uint8) for value in values]
    return torch.cat(rows) if rows else torch.empty(0, dtype=torch.uint8)


def _unpacked(words: Any, like: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Take tensors from the front of a row of bytes.

    Args:
        words: The bytes.
        like: Tensors of the same shapes and types.

    Returns:
        What is left, and the tensors.
    """
    found = []
    for one in like:
        size = one.numel() * one.element_size()
        # A copy begins where its type may begin.
        found.append(words[:size].clone().view(one.dtype).reshape(one.shape))
        words = words[size:]
    return words, found
