"""The timeline of a recorded run: its stretches of time with what was counted in each."""

from __future__ import annotations

import collections
import statistics
from typing import TYPE_CHECKING

from xladoctor.timeline import Event, Stop, Stretch, Timeline

if TYPE_CHECKING:
    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.readings.tables import StepRow

_Key = tuple[int, float | None]


def timeline(run: RunFacts) -> Timeline:
    """What each core did along the time.

    Runs of several hosts have clocks of their own, so they are laid where the same steps end at
    the same time: the cores meet in their collectives. Without steps in common, each begins where
    its manifest says it did.
    """
    events = _events(run)
    graphs: collections.Counter[tuple[int, int | None, int | None]] = collections.Counter()
    for row in run.launches:
        graphs[row.core, row.first, row.last] += row.count
    stretches = []
    stops = []
    rows = [run.steps_of(index) for index in range(len(run.runs))]
    for index, zero in enumerate(_zeros(run, rows)):
        steps = rows[index]
        stretches += [
            Stretch(
                core=row.core,
                first=row.first,
                last=row.last,
                start=row.t0 - zero,
                seconds=max(0.0, row.t1 - row.t0),
                parts=row.parts,
                events=tuple(events.get((row.core, row.t0), ())),
                # What is between steps has no numbers, so its launches are not told apart.
                graphs=graphs[row.core, row.first, row.last] if row.first is not None else None,
                fastest=row.fastest,
                slowest=row.slowest,
            )
            for row in steps
        ]
        stops += [
            Stop(
                row.core,
                max(0.0, row.t - zero),
                row.waits_for or row.state or "stands still",
                run.place(row.frames),
            )
            for row in run.hangs_of(index)
            if row.t is not None
        ]
    stretches.sort(key=lambda one: (one.core, one.start))
    return Timeline(tuple(stretches), tuple(stops))


def _zeros(run: RunFacts, rows: list[list[StepRow]]) -> list[float]:
    """What each run's clock said when the first of them began."""
    begins = [min((row.t0 for row in steps), default=0.0) for steps in rows]
    zeros = [begin - offset for begin, offset in zip(begins, _offsets(run), strict=True)]
    ends = [_ends(steps) for steps in rows]
    first = next((at for at, known in enumerate(ends) if known), None)
    if first is None or len(rows) < 2:
        return zeros
    for at, known in enumerate(ends):
        later = [known[step] - ends[first][step] for step in known.keys() & ends[first].keys()]
        if at != first and later:
            zeros[at] = zeros[first] + statistics.median(later)
    # Nothing begins before the run does.
    early = min(begin - zero for begin, zero in zip(begins, zeros, strict=True))
    return [zero + early for zero in zeros]


def _ends(steps: list[StepRow]) -> dict[int, float]:
    """When each step was over for the last of the run's cores."""
    ends: dict[int, float] = {}
    for row in steps:
        if row.last is not None:
            ends[row.last] = max(ends.get(row.last, row.t1), row.t1)
    return ends


def _offsets(run: RunFacts) -> list[float]:
    """When each run began, in seconds after the first; 0 where that is not known."""
    starts = [one.manifest.started for one in run.runs]
    known = [start for start in starts if start is not None]
    first = min(known, default=0.0)
    return [0.0 if start is None else start - first for start in starts]


def _events(run: RunFacts) -> dict[_Key, list[Event]]:
    found: dict[_Key, list[Event]] = {}
    for number, (made, rows) in enumerate(run.new_graphs, 1):
        for row in rows:
            found.setdefault((row.core, row.at), []).append(
                Event(
                    "compile",
                    row.trigger or "graph",
                    made.location,
                    seconds=row.seconds,
                    graph=number,
                )
            )
    for sync in run.syncs:
        found.setdefault((sync.core, sync.at), []).append(
            Event(
                "host_sync",
                sync.what,
                run.place(sync.frames),
                sync.count,
                sync.seconds,
                sync.kinds,
            )
        )
    for fallback in run.fallbacks:
        found.setdefault((fallback.core, fallback.at), []).append(
            Event(
                "fallback",
                fallback.operation,
                run.place(fallback.frames),
                fallback.count,
                fallback.seconds,
            )
        )
    return found
