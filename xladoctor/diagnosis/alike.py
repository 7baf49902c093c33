"""Cores by what they share: most of them do the same, and the few that do not are named."""

from __future__ import annotations

import collections
import statistics
from typing import TYPE_CHECKING

from xladoctor.diagnosis.lagging import lagging
from xladoctor.diagnosis.words import at, duration, plural
from xladoctor.results import AlikeCores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.results import CoreSummary

#: Counts of a core that say what it does, and what one of them is called.
_COUNTS = {
    "steps": "step",
    "compilations": "compilation",
    "host_syncs": "host sync",
    "fallbacks": "CPU fallback",
    "executions": "graph run",
}
#: By how much a count may be off the usual one without a word: these, or this share of it.
_FEW, _SHARE = 2, 0.05

_Key = tuple[object, ...]


def alike(run: RunFacts) -> tuple[AlikeCores, ...]:
    """The cores in groups that did the same, the largest first; () for a single core."""
    cores = run.core_summaries
    if len(cores) < 2:
        return ()
    usual = {name: _median([getattr(one, name) for one in cores]) for name in _COUNTS}
    graphs = _own_graphs(run)
    late = lagging(run)
    groups: dict[_Key, list[CoreSummary]] = collections.defaultdict(list)
    for one in cores:
        counts = tuple(_off(getattr(one, name), usual[name]) for name in _COUNTS)
        key: _Key = (*counts, graphs.get(one.core), one.core in late)
        groups[key].append(one)
    found = []
    for key, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        differs = [
            f"{plural(abs(off), word)} {'more' if off > 0 else 'fewer'}"
            for off, word in zip(key, _COUNTS.values(), strict=False)
            if isinstance(off, int) and off
        ]
        first = members[0].core
        if graphs.get(first):
            differs.append(_graphs_in_words(run, graphs[first]))
        if first in late:
            most = max(late[one.core][0] for one in members)
            differs.append(f"works {duration(most)} longer in each step")
        medians = [one.step_seconds_median for one in members if one.step_seconds_median]
        found.append(
            AlikeCores(
                cores=tuple(one.core for one in members),
                hosts=tuple(dict.fromkeys(one.host for one in members if one.host is not None)),
                differs=", ".join(differs),
                step_seconds_median=statistics.median(medians) if medians else None,
                **{name: _median([getattr(one, name) for one in members]) for name in _COUNTS},
            )
        )
    return tuple(found)


def _median(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else None


def _off(value: int | None, usual: int | None) -> int | None:
    """How far a count is off the usual one; 0 if that says nothing."""
    if value is None or usual is None:
        return None
    off = value - usual
    return off if abs(off) > max(_FEW, _SHARE * usual) else 0


def _own_graphs(run: RunFacts) -> dict[int, tuple[int, ...]]:
    """The graphs (places among the compilations) that a core shares with less than half of all."""
    found: dict[int, list[int]] = collections.defaultdict(list)
    for number, made in enumerate(run.compilations):
        if len(made.cores) * 2 < len(run.cores):
            for core in made.cores:
                found[core].append(number)
    return {core: tuple(numbers) for core, numbers in found.items()}


def _graphs_in_words(run: RunFacts, numbers: Sequence[int]) -> str:
    first = run.compilations[numbers[0]]
    what = plural(len(numbers), "graph")
    return f"{what} that most cores do not build (the first at {at(first.location)})"
