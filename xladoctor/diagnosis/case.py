"""What a diagnosis is given: all readings of one run, counted once.

A ``Case`` has ``run`` (a recorded run: lines are known) or ``pasted`` (metrics reports and debug
text: only names are known), or both. A diagnosis takes the better knowledge that is there.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import statistics
from typing import TYPE_CHECKING, TypeVar, overload

from xladoctor.diagnosis.causes import explain
from xladoctor.diagnosis.pasted import states_of
from xladoctor.diagnosis.succession import followers, shifted
from xladoctor.diagnosis.thresholds import WARMUP_EXECUTIONS
from xladoctor.diagnosis.words import library
from xladoctor.readings.run import location
from xladoctor.results import Cause, Compilation, CoreSummary, TimeParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Location
    from xladoctor.readings.tables import (
        CompilationRow,
        DivergenceRow,
        ErrorRow,
        FallbackRow,
        Frame,
        HangRow,
        LaunchRow,
        PartingRow,
        Run,
        StepRow,
        SyncRow,
    )

_Row = TypeVar(
    "_Row", "CompilationRow", "ErrorRow", "FallbackRow", "LaunchRow", "StepRow", "SyncRow"
)
_Any = TypeVar("_Any")
_Number = TypeVar("_Number", int, float)

#: Names of the parts of a step, in the order in which they are shown.
PARTS = ("compile", "execute", "input_wait", "host_sync", "trace", "fallback", "other")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One run, as far as it is known."""

    run: RunFacts | None
    pasted: Pasted | None

    @property
    def states(self) -> tuple[State, ...]:
        """Metrics by process, pasted or recorded: for what only metrics tell."""
        recorded = [report for run in self.run.runs for report in run.metrics] if self.run else []
        return (*states_of(recorded, live=True), *(self.pasted.states if self.pasted else ()))


class RunFacts:
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
        taken: set[int] = set()
        for index, run in enumerate(runs):
            self._number_cores(index, run, taken)
        self._places: dict[tuple[Frame, ...], Location | None] = {}
        self.cores: tuple[int, ...] = tuple(sorted(set(self._numbers.values())))

    def _number_cores(self, index: int, run: Run, taken: set[int]) -> None:
        stepping = [r for r in run.cores if (index, r.process, r.core) in self._stepping]
        follows = followers(stepping, run.processes)
        steps = {(row.process, row.core): row.steps or 0 for row in stepping}
        order = list(follows)
        rows = sorted(run.cores, key=lambda row: (row.core, row.process))
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
                while number in taken:
                    number += 1
                taken.add(number)
            self._numbers[key] = number

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

    @functools.cached_property
    def steps(self) -> list[StepRow]:
        """Step rows of all cores; the parent that only waits for its cores is left out."""
        return [
            self._here(i, row)
            for i, run in enumerate(self.runs)
            for row in run.steps
            if not self._stepping or (i, row.process, row.core) in self._stepping
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
    def hangs(self) -> list[HangRow]:
        """Where the cores stood when none made progress."""
        return [
            dataclasses.replace(
                row,
                core=self._number(i, row.process, row.core),
                waits_for=row.waits_for and self._said(i, row.process, [row.core], row.waits_for),
                for_cores=tuple(self._number(i, row.process, core) for core in row.for_cores),
            )
            for i, run in enumerate(self.runs)
            for row in run.hangs
        ]

    @functools.cached_property
    def divergences(self) -> list[DivergenceRow]:
        """Cores that were about to run another graph than the others."""
        return [
            dataclasses.replace(
                self._shifted(i, row.process, next(iter(row.cores), row.core), row),
                core=self._number(i, row.process, row.core),
                cores=tuple(self._number(i, row.process, core) for core in row.cores),
                message=self._said(i, row.process, [row.core, *row.cores], row.message),
            )
            for i, run in enumerate(self.runs)
            for row in run.divergences
        ]

    @functools.cached_property
    def partings(self) -> list[PartingRow]:
        """Cores whose weights part."""
        return [
            dataclasses.replace(
                self._shifted(i, row.process, next(iter(row.cores), None), row),
                cores=tuple(self._number(i, row.process, core) for core in row.cores),
                message=self._said(i, row.process, row.cores, row.message),
            )
            for i, run in enumerate(self.runs)
            for row in run.partings
        ]

    def _said(self, index: int, process: str, cores: Sequence[int | None], text: str) -> str:
        """What a run has said about its cores, with a word on their numbers if they are others."""
        if all(self._number(index, process, core) == core for core in cores):
            return text
        head, end, tail = text.partition("\n")
        return f"{head} (as numbered in {self.runs[index].manifest.path}){end}{tail}"

    @functools.cached_property
    def steps_by_core(self) -> dict[int, int]:
        """Optimizer steps per core."""
        counts = dict.fromkeys(self.cores, 0)
        for i, run in enumerate(self.runs):
            for row in run.cores:
                core = self._number(i, row.process, row.core)
                before = self._steps_before.get((i, row.process, row.core), 0)
                counts[core] = max(counts[core], before + (row.steps or 0))
        for step in self.steps:
            counts[step.core] = max(counts.get(step.core, 0), step.last or 0)
        return counts

    @property
    def step_count(self) -> int:
        """The largest number of steps over the cores."""
        return max(self.steps_by_core.values(), default=0)

    @functools.cached_property
    def only_evaluates(self) -> bool:
        """Whether no core has an optimizer: then steps are the turns of its loop."""
        stepping = [row for run in self.runs for row in run.cores if row.steps]
        return bool(stepping) and all(row.turns for row in stepping)

    @property
    def step_word(self) -> str:
        """What a step is called in a sentence."""
        return "step" if self.only_evaluates else "optimizer step"

    @functools.cached_property
    def compilations(self) -> tuple[Compilation, ...]:
        """One entry a graph, with all the cores for which it was new.

        Rows of several cores are the same graph if they have the same hash; without a hash, if
        they are the same-numbered new graph of the same program point.
        """
        groups: dict[object, list[CompilationRow]] = {}
        seen: collections.Counter[object] = collections.Counter()
        for row in self.compilation_rows:
            identity = row.graph or (row.frames[:1], row.trigger)
            seen[(row.core, identity)] += 1
            groups.setdefault((identity, seen[(row.core, identity)]), []).append(row)
        return tuple(self._compilation(rows) for rows in groups.values())

    def _compilation(self, rows: list[CompilationRow]) -> Compilation:
        first = rows[0]
        seconds = [row.seconds for row in rows if row.seconds is not None]
        cause = next(
            (
                self._causes[row.process, row.hlo]
                for row in rows
                if row.hlo is not None and (row.process, row.hlo) in self._causes
            ),
            next((row.cause for row in rows if row.cause is not None), None),
        )
        after = [row.executions >= WARMUP_EXECUTIONS for row in rows if row.executions is not None]
        return Compilation(
            cores=tuple(sorted({row.core for row in rows})),
            step=min((row.step for row in rows if row.step is not None), default=None),
            seconds=max(seconds, default=None),
            graph=first.graph,
            location=self.place(first.frames),
            cause=cause or Cause("unknown"),
            after_warmup=any(after) if after else None,
            modelled=first.modelled,
            trigger=first.trigger,
            via=library(first.frames),
        )

    @functools.cached_property
    def step_ends(self) -> frozenset[Location | None]:
        """The places at which the program ends its steps (torch_xla.sync, a device loader)."""
        return frozenset(
            self.place(row.frames) for row in self.launches if row.trigger in ("step", "sync")
        )

    @functools.cached_property
    def evaluation_batches(self) -> Mapping[tuple[str, str | None], int]:
        """File and function to the graphs, over all cores, that device loaders ended there.

        Functions in which steps end are left out: what remains evaluates.
        """
        found: collections.Counter[tuple[str, str | None]] = collections.Counter()
        training = set()
        for row in self.launches:
            place = self.place(row.frames)
            if place is not None and row.trigger == "loader":
                found[place.filename, place.function] += row.count
            elif place is not None and row.trigger == "step":
                training.add((place.filename, place.function))
        return {function: count for function, count in found.items() if function not in training}

    @functools.cached_property
    def _causes(self) -> dict[tuple[str, str], Cause]:
        return {key: cause for run in self.runs for key, cause in explain(run).items()}

    @functools.cached_property
    def _eager_unseen(self) -> bool:
        """Whether cores of one process ran in eager mode: nobody sees what they compiled."""
        return any(row.trigger == "eager" for row in self.launches) and not any(
            row.trigger == "eager" for row in self.compilation_rows
        )

    def compilations_of(self, core: int) -> int | None:
        """New graphs of one core; None when not measured."""
        if self._eager_unseen:
            return None
        return sum(row.core == core for row in self.compilation_rows)

    @property
    def compilation_count(self) -> int | None:
        """New graphs of one core, the largest number over the cores; None when not measured."""
        if self._eager_unseen:
            return None
        return max((self.compilations_of(core) or 0 for core in self.cores), default=0)

    @property
    def after_warmup_count(self) -> int | None:
        """Of these, the ones after the first three executions of their program point."""
        rows = self.compilation_rows
        if self._eager_unseen or (rows and all(row.executions is None for row in rows)):
            return None
        late = collections.Counter(
            row.core for row in rows if (row.executions or 0) >= WARMUP_EXECUTIONS
        )
        return max(late.values(), default=0)

    @functools.cached_property
    def fallback_counts(self) -> dict[str, int]:
        """Runs on the CPU by operation, summed over the cores, the most frequent first."""
        counts: collections.Counter[str] = collections.Counter()
        for row in self.fallbacks:
            counts[row.operation] += row.count
        return dict(counts.most_common())

    @property
    def sync_count(self) -> int:
        """Reads, summed over the cores."""
        return sum(row.count for row in self.syncs)

    def per_core(self, seconds: Iterable[float | None]) -> float | None:
        """Mean per core of seconds that were measured on any core; None if none was measured."""
        known = [value for value in seconds if value is not None]
        return sum(known) / max(1, len(self.cores)) if known else None

    @functools.cached_property
    def time(self) -> TimeParts:
        """Where the wall time of a core went (mean); the parts add up to the total."""
        if not self.steps:
            return TimeParts()
        totals: dict[str, float] = {}
        for row in self.steps:
            for part, seconds in row.parts.items():
                name = part if part in PARTS else "other"
                totals[name] = totals.get(name, 0.0) + seconds
        count = len({row.core for row in self.steps})
        parts = {part: totals[part] / count if part in totals else None for part in PARTS}
        if self._eager_unseen and not parts["compile"]:
            parts["compile"] = None
        total = sum(row.t1 - row.t0 for row in self.steps) / count
        return TimeParts(total=total, **parts)

    @functools.cached_property
    def within_other(self) -> Mapping[str, float] | None:
        """What "other" holds, in seconds per core (mean); None if that was not recorded."""
        named: dict[str, float] = {}
        for row in self.steps:
            for part, seconds in row.parts.items():
                if part not in PARTS:
                    named[part] = named.get(part, 0.0) + seconds
        count = len({row.core for row in self.steps})
        return {part: seconds / count for part, seconds in named.items()} or None

    @functools.cached_property
    def step_seconds(self) -> Mapping[int, tuple[float, ...]]:
        """Wall seconds of each step by core; a stretch of several steps counts with its mean."""
        out: dict[int, list[float]] = {}
        for row in sorted(self.steps, key=lambda row: (row.core, row.t0)):
            if row.first is not None and row.last is not None:
                count = row.last - row.first + 1
                out.setdefault(row.core, []).extend([(row.t1 - row.t0) / count] * count)
        return {core: tuple(seconds) for core, seconds in out.items()}

    @functools.cached_property
    def core_summaries(self) -> tuple[CoreSummary, ...]:
        """Counts by core."""
        return tuple(
            CoreSummary(
                core=core,
                compilations=self.compilations_of(core),
                steps=self.steps_by_core.get(core),
                step_seconds_median=self._median_step(core),
                host_syncs=sum(row.count for row in self.syncs if row.core == core),
                fallbacks=sum(row.count for row in self.fallbacks if row.core == core),
                executions=sum(row.count for row in self.launches if row.core == core),
                to_device=sum_known(row.to_device for row in self.steps if row.core == core),
                from_device=sum_known(row.from_device for row in self.steps if row.core == core),
            )
            for core in self.cores
        )

    def _median_step(self, core: int) -> float | None:
        settled = self.step_seconds.get(core, ())[WARMUP_EXECUTIONS:]
        return statistics.median(settled) if settled else None


def sum_known(values: Iterable[_Number | None]) -> _Number | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
