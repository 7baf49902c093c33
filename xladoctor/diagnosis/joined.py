"""Several run directories as the rows of one run: which cores are the same, which steps follow."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, TypeVar, overload

from xladoctor.diagnosis.process_chain import followers, shifted
from xladoctor.diagnosis.words import is_installed, noted, package_of
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Location
    from xladoctor.readings.tables import (
        CompilationRow,
        DeathRow,
        DivergenceRow,
        ErrorRow,
        FallbackRow,
        Frame,
        HangRow,
        LaunchRow,
        Run,
        SilentRow,
        StepRow,
        SyncRow,
        WeightDivergenceRow,
    )

_Row = TypeVar(
    "_Row",
    "CompilationRow",
    "ErrorRow",
    "FallbackRow",
    "LaunchRow",
    "SilentRow",
    "StepRow",
    "SyncRow",
)
_Any = TypeVar("_Any")


def _next_free(free: dict[int, int], number: int) -> int:
    """The first number from here on that is not taken; it is taken now.

    Args:
        free: Number that is taken to one not before the next that is free; made shorter each time,
            so that as many cores as there are take hardly more than one look each.
        number: Where to begin.
    """
    passed = []
    while number in free:
        passed.append(number)
        number = free[number]
    for one in (*passed, number):
        free[one] = number + 1
    return number


class JoinedRuns:
    """One or several run directories as the cores of one run.

    Rows are re-numbered where two processes name their cores alike (several hosts, or several
    single-core programs); a process that never took a step (the parent of the cores) is the same
    core as its namesake. A process whose cores began when those of another had ended continues
    them: the same cores, and its steps come after theirs.
    """

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        self._stepping = {
            (index, row.process, row.core)
            for index, run in enumerate(runs)
            for row in run.steps
            if row.last is not None
        }
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._steps_before: dict[tuple[int, str, int], int] = {}
        #: Host of each core, where the run directories are of hosts.
        self.hosts: dict[int, str] = {}
        free: dict[int, int] = {}
        for index, run in enumerate(runs):
            self._number_cores(index, run, free)
        self._places: dict[tuple[Frame, ...], Location | None] = {}
        self.cores: tuple[int, ...] = tuple(sorted(set(self._numbers.values())))

    def _number_cores(self, index: int, run: Run, free: dict[int, int]) -> None:
        stepping = [r for r in run.cores if (index, r.process, r.core) in self._stepping]
        follows = followers(stepping, run.processes)
        steps = {(row.process, row.core): row.steps or 0 for row in stepping}
        order = list(follows)
        # Processes stand in the order in which they started; their names say nothing of it.
        rows = sorted(run.cores, key=lambda row: row.core)
        # Who continues another comes after it, in the order of time.
        rows.sort(key=lambda row: order.index(row.process) + 1 if row.process in follows else 0)
        for row in rows:
            key = (index, row.process, row.core)
            before = (index, follows.get(row.process, ""), row.core)
            number = row.core
            if key in self._stepping and before in self._stepping:
                number = self._numbers[before]
                earlier = self._steps_before.get(before, 0)
                self._steps_before[key] = earlier + steps[before[1:]]
            elif key in self._stepping:
                number = _next_free(free, number)
            self._numbers[key] = number
            if run.manifest.host is not None:
                self.hosts[number] = run.manifest.host

    def _shifted(self, index: int, process: str, core: int | None, row: _Any) -> _Any:
        steps = 0 if core is None else self._steps_before.get((index, process, core), 0)
        return shifted(row, steps)

    @overload
    def _number(self, index: int, process: str, core: int) -> int: ...
    @overload
    def _number(self, index: int, process: str, core: None) -> None: ...
    def _number(self, index: int, process: str, core: int | None) -> int | None:
        return None if core is None else self._numbers.get((index, process, core), core)

    def _numbered(self, rows: Callable[[Run], Iterable[_Row]]) -> list[_Row]:
        """Rows of one kind of all runs, with the numbers that their cores have here."""
        return [self._here(i, row) for i, run in enumerate(self.runs) for row in rows(run)]

    def _here(self, index: int, row: _Row) -> _Row:
        """A row with the number that its core has here, and its steps counted from the first."""
        moved = dataclasses.replace(row, core=self._number(index, row.process, row.core))
        shifted_row: _Row = self._shifted(index, row.process, row.core, moved)
        return shifted_row

    def place(self, frames: tuple[Frame, ...]) -> Location | None:
        """The user's line of some frames, relative to where the command ran."""
        if frames not in self._places:
            self._places[frames] = location(frames, self.runs[0].manifest.cwd)
        return self._places[frames]

    def within(self, frames: tuple[Frame, ...]) -> Location | None:
        """Where in a framework something was that the user's line has called; None if not in one.

        The user's line is :meth:`place`; this one is related to it.
        """
        if not frames or not is_installed(frames[0][0]) or self.place(frames) is None:
            return None
        inner = location(frames[:1])
        assert inner is not None
        return (
            None if inner == self.place(frames) else noted(inner, f"in {package_of(frames[0][0])}")
        )

    @functools.cached_property
    def steps(self) -> list[StepRow]:
        """Step rows of all cores; the parent that only waits for its cores is left out."""
        return [row for i in range(len(self.runs)) for row in self.steps_of(i)]

    def steps_of(self, index: int) -> list[StepRow]:
        """The step rows of one of the runs."""
        return [
            self._here(index, row)
            for row in self.runs[index].steps
            if not self._stepping or (index, row.process, row.core) in self._stepping
        ]

    @functools.cached_property
    def syncs(self) -> list[SyncRow]:
        """Reads of all cores."""
        return self._numbered(lambda run: run.syncs)

    @functools.cached_property
    def fallbacks(self) -> list[FallbackRow]:
        """Fallbacks of all cores."""
        return self._numbered(lambda run: run.fallbacks)

    @functools.cached_property
    def fallbacks_at(self) -> dict[Location | None, tuple[str, ...]]:
        """The operations that ran on the CPU, by their line."""
        found: dict[Location | None, dict[str, None]] = {}
        for row in self.fallbacks:
            found.setdefault(self.place(row.frames), {})[row.operation] = None
        return {place: tuple(operations) for place, operations in found.items()}

    @functools.cached_property
    def launches(self) -> list[LaunchRow]:
        """Launches of all cores."""
        return self._numbered(lambda run: run.launches)

    @property
    def launches_recorded(self) -> bool:
        """Whether launches were measured at all: then none means that nothing was executed."""
        return any(row.parts.get("execute") is not None for row in self.steps)

    @functools.cached_property
    def compilation_rows(self) -> list[CompilationRow]:
        """New graphs, one row a core."""
        return self._numbered(lambda run: run.compilations)

    @functools.cached_property
    def errors(self) -> list[ErrorRow]:
        """Exceptions that ended cores, in the order in which they were recorded."""
        return self._numbered(lambda run: run.errors)

    @functools.cached_property
    def deaths(self) -> list[DeathRow]:
        """Processes that ended without their last record."""
        return [
            dataclasses.replace(
                row,
                core=self._number(i, row.process, row.core),
                cores=tuple(self._number(i, row.process, core) for core in row.cores),
            )
            for i, run in enumerate(self.runs)
            for row in run.deaths
        ]

    @functools.cached_property
    def hangs(self) -> list[HangRow]:
        """Where the cores stood when none made progress."""
        return [row for i in range(len(self.runs)) for row in self.hangs_of(i)]

    def hangs_of(self, i: int) -> list[HangRow]:
        """The same of one of the runs, whose times are of one clock."""
        return [
            dataclasses.replace(
                row,
                core=self._number(i, row.process, row.core),
                waits_for=row.waits_for and self._said(i, row.process, [row.core], row.waits_for),
                for_cores=tuple(self._number(i, row.process, core) for core in row.for_cores),
            )
            for row in self.runs[i].hangs
        ]

    @functools.cached_property
    def divergences(self) -> list[DivergenceRow]:
        """Cores that were about to run another graph than the others."""
        return [
            dataclasses.replace(
                self._shifted(i, row.process, next(iter(row.cores), row.core), row),
                core=self._number(i, row.process, row.core),
                cores=tuple(self._number(i, row.process, core) for core in row.cores),
                groups=tuple(
                    tuple(self._number(i, row.process, core) for core in group)
                    for group in row.groups
                ),
                message=self._said(i, row.process, [row.core, *row.cores], row.message),
            )
            for i, run in enumerate(self.runs)
            for row in run.divergences
        ]

    @functools.cached_property
    def weight_divergences(self) -> list[WeightDivergenceRow]:
        """Cores whose weights part."""
        return [
            dataclasses.replace(
                self._shifted(i, row.process, next(iter(row.cores), None), row),
                cores=tuple(self._number(i, row.process, core) for core in row.cores),
                message=self._said(i, row.process, row.cores, row.message),
            )
            for i, run in enumerate(self.runs)
            for row in run.weight_divergences
        ]

    @functools.cached_property
    def silent(self) -> list[SilentRow]:
        """What trains wrong without an error."""
        return self._numbered(lambda run: run.silent)

    def _said(self, index: int, process: str, cores: Sequence[int | None], text: str) -> str:
        """What a run has said about its cores, with a word on their numbers if they are others."""
        if all(self._number(index, process, core) == core for core in cores):
            return text
        head, end, tail = text.partition("\n")
        return f"{head} (as numbered in {self.runs[index].manifest.path}){end}{tail}"
