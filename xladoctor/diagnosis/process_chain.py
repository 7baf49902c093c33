"""Processes of one run that came one after the other: a program may launch its cores repeatedly."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeVar

from xladoctor.readings.iterations import NO_OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xladoctor.readings.tables import CoreRow, ProcessRow, Readings, Run

_Row = TypeVar("_Row")

#: Fields of rows that hold the number of a step.
_STEPS = ("step", "first", "last")


@dataclasses.dataclass
class _Process:
    """Two stretches of time: that of its cores, and that of itself."""

    pid: int | None = None
    parent: int | None = None
    first: float = math.inf  # its first core began
    last: float = -math.inf  # its last core ended
    since: float | None = None
    until: float = math.inf

    def ended_before(self, other: _Process) -> bool:
        """Whether the other began when this was over; a parent that only waited was not there."""
        waited = other.pid is not None and other.pid == self.parent
        launched = self.pid is not None and self.pid == other.parent
        begin = other.first if waited or other.since is None else other.since
        end = self.last if launched or self.since is None else self.until
        return end <= begin


def followers(cores: Iterable[CoreRow], processes: Iterable[ProcessRow] = ()) -> dict[str, str]:
    """Which process continues which.

    Args:
        cores: The cores of one run that have stepped; their times are of one clock.
        processes: The processes of the run, on the same clock: two that live at the same time are
            different cores, even if one has stepped before the other; unless one has launched the
            other and waited for it.

    Returns:
        Process to the one before it, which had ended when it began. A process has at most one that
        continues it.
    """
    known: dict[str, _Process] = {}
    for row in cores:
        one = known.setdefault(row.process, _Process())
        one.first = min(one.first, -math.inf if row.started is None else row.started)
        one.last = max(one.last, math.inf if row.ended is None else row.ended)
    for life in processes:
        if life.process in known and life.since is not None:
            one = known[life.process]
            one.pid, one.parent, one.since = life.pid, life.parent, life.since
            one.until = math.inf if life.until is None else life.until
    free: list[str] = []
    follows: dict[str, str] = {}
    for process in sorted(known, key=lambda name: (known[name].first, known[name].last)):
        before = [name for name in free if known[name].ended_before(known[process])]
        if before:
            follows[process] = max(before, key=lambda name: known[name].last)
            free.remove(follows[process])
        free.append(process)
    return follows


def shifted(row: _Row, steps: int) -> _Row:
    """A row of a process that continues one with so many steps."""
    if not steps:
        return row
    numbers = {name: getattr(row, name, None) for name in _STEPS}
    found = {name: number + steps for name, number in numbers.items() if number is not None}
    return dataclasses.replace(row, **found)  # type: ignore[type-var]


def without_earlier_iterations(readings: Readings) -> Readings:
    """Readings in which iterations of an earlier launch are no steps of the training after it.

    A program may look at its devices in one launch, or evaluate, and train in the next: the
    iterations of the first are no optimizer steps, and steps count from the first of the training.
    """
    runs = tuple(_trained_only(run) for run in readings.runs)
    turning = any(row.iterations for run in runs for row in run.cores)
    notes = [note for note in readings.notes if turning or not note.endswith(NO_OPTIMIZER)]
    return dataclasses.replace(readings, runs=runs, notes=tuple(notes))


def _chain(process: str, follows: Mapping[str, str]) -> Iterator[str]:
    """All processes that one continues, the last first."""
    while process in follows:
        process = follows[process]
        yield process


def _trained_only(run: Run) -> Run:
    turning = {row.process for row in run.cores if row.iterations}
    training = {row.process for row in run.cores if row.steps and not row.iterations}
    if not turning or not training:
        return run
    follows = followers([row for row in run.cores if row.steps], run.processes)
    earlier = {
        before for process in training for before in _chain(process, follows) if before in turning
    }
    if not earlier:
        return run
    unnumbered: dict[str, Any] = {
        kind: tuple(
            dataclasses.replace(row, first=None, last=None) if row.process in earlier else row
            for row in getattr(run, kind)
        )
        for kind in ("steps", "syncs", "fallbacks", "launches")
    }
    return dataclasses.replace(
        run,
        cores=tuple(
            dataclasses.replace(row, steps=0, iterations=False) if row.process in earlier else row
            for row in run.cores
        ),
        compilations=tuple(
            dataclasses.replace(row, step=0) if row.process in earlier else row
            for row in run.compilations
        ),
        **unnumbered,
    )
