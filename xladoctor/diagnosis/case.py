"""What a diagnosis is given: all readings of one run, counted once.

A ``Case`` has ``run`` (a recorded run: lines are known) or ``pasted`` (metrics reports and debug
text: only names are known), or both. A diagnosis takes the better knowledge that is there.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import statistics
from typing import TYPE_CHECKING, TypeVar

from xladoctor.diagnosis.causes import explain
from xladoctor.diagnosis.device_words import TORCH_TPU, TORCH_XLA
from xladoctor.diagnosis.joined import JoinedRuns
from xladoctor.diagnosis.pasted import states_of
from xladoctor.diagnosis.sharding import sharding_of
from xladoctor.diagnosis.thresholds import WARMUP_EXECUTIONS
from xladoctor.diagnosis.words import library
from xladoctor.results import Cause, Compilation, CoreSummary, Feed, TimeParts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Location
    from xladoctor.readings import tables
    from xladoctor.readings.tables import (
        CompilationRow,
        FallbackRow,
        LaunchRow,
        StepRow,
        SyncRow,
        Typical,
    )
    from xladoctor.shardings import Sharding

_Number = TypeVar("_Number", int, float)

#: Cores up to which each step of each core counts for itself in a digest too.
_SHOWN_WHOLE = 64

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


class RunFacts(JoinedRuns):
    """What the rows of a run add up to."""

    @functools.cached_property
    def member(self) -> str:
        """Which of the family of XLA devices it ran on (devices.toml)."""
        processes = [row for run in self.runs for row in run.processes]
        theirs = any(row.torch_tpu and not row.torch_xla for row in processes)
        return TORCH_TPU if theirs else TORCH_XLA

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

    def steps_of_source(self, source: str) -> int | None:
        """Optimizer steps of all cores of the process that a metrics report is of.

        Args:
            source: As ``MetricsReport.source`` names it: the process's folder, and the file.
        """
        return sum(self._steps_in(source)) or None

    def cores_of_source(self, source: str) -> int:
        """Cores that stepped in the process that a metrics report is of."""
        return len(self._steps_in(source))

    def _steps_in(self, source: str) -> list[int]:
        process = source.rpartition("/")[0]
        rows = (row for run in self.runs for row in run.cores if row.process == process)
        return [row.steps for row in rows if row.steps]

    @functools.cached_property
    def sharding(self) -> Sharding | None:
        """What lies where in a program that is one program for all devices; None in any other."""
        return sharding_of(self)

    @functools.cached_property
    def step_count(self) -> int:
        """The largest number of steps over the cores."""
        return max(self.steps_by_core.values(), default=0)

    @functools.cached_property
    def only_evaluates(self) -> bool:
        """Whether no core has an optimizer: then steps are the iterations of its loop."""
        stepping = [row for run in self.runs for row in run.cores if row.steps]
        return bool(stepping) and all(row.iterations for row in stepping)

    @property
    def step_word(self) -> str:
        """What a step is called in a sentence."""
        return "step" if self.only_evaluates else "optimizer step"

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """One entry a graph, with all the cores for which it was new."""
        return tuple(made for made, _ in self.new_graphs)

    @functools.cached_property
    def new_graphs(self) -> tuple[tuple[Compilation, tuple[CompilationRow, ...]], ...]:
        """The compilations, each with its rows.

        Rows of several cores are the same graph if they have the same hash; without a hash, if
        they are the same-numbered new graph of the same program point.
        """
        groups: dict[object, list[CompilationRow]] = {}
        seen: collections.Counter[object] = collections.Counter()
        for row in self.compilation_rows:
            identity = row.graph or (row.frames[:1], row.trigger)
            seen[(row.core, identity)] += 1
            groups.setdefault((identity, seen[(row.core, identity)]), []).append(row)
        return tuple((self._compilation(rows), tuple(rows)) for rows in groups.values())

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
        after = [self._late(row) for row in rows if row.executions is not None]
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
            fed=self.feed(next((row.fed for row in rows if row.fed is not None), None)),
            feeds_recorded=first.feeds_recorded,
        )

    def feed(self, fed: tables.Feed | None) -> Feed | None:
        """A loader with places relative to where the command ran."""
        if fed is None:
            return None
        last = None if fed.batches is None else fed.batch >= fed.batches
        return Feed(self.place(fed.made), self.place(fed.loop), last)

    def _late(self, row: CompilationRow) -> bool:
        """Whether a graph was new after warm-up: that of its program point, and the first step.

        A constructor (of ``DistributedDataParallel``, for example) ends several graphs at one line
        before there is a step; that line has warmed up nothing. The graph of a whole step is run
        once in each, whatever a device loader has ended at its line before.
        """
        warm = WARMUP_EXECUTIONS if row.trigger == "step" else 1
        first = bool(self.step_count) and row.step is not None and row.step <= warm
        return (row.executions or 0) >= WARMUP_EXECUTIONS and not first

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

    def evaluation_before(self, step: int | None, core: int) -> Location | None:
        """The loop of an evaluation by a device loader just before a step of a core, if any."""
        for row in self.launches:
            if (row.core, row.trigger, row.first) != (core, "loader", step) or step is None:
                continue
            place = self.place(row.frames)
            if place is not None and (place.filename, place.function) in self.evaluation_batches:
                return place
        return None

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
        return self._new_graphs_by_core[core]

    @functools.cached_property
    def _new_graphs_by_core(self) -> collections.Counter[int]:
        return collections.Counter(row.core for row in self.compilation_rows)

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
        late = collections.Counter(row.core for row in rows if self._late(row))
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
    def typical(self) -> Mapping[int, Typical]:
        """The typical step of cores whose rows are a digest."""
        return {
            self._number(i, row.process, row.core): row.typical
            for i, run in enumerate(self.runs)
            for row in run.cores
            if row.typical is not None
        }

    @functools.cached_property
    def step_seconds(self) -> Mapping[int, tuple[float, ...]]:
        """Wall seconds of each step by core.

        Of a stretch of several steps the slowest and the fastest are known, in no order, and the
        mean of the others. Of many cores with digests a stretch counts as its slowest, its fastest
        and one of the mean: enough for what is longest and shortest.
        """
        out: dict[int, list[float]] = {}
        for row in sorted(self.steps, key=lambda row: (row.core, row.t0)):
            if row.first is not None and row.last is not None:
                each = _each(row)
                if row.core in self.typical and len(self.cores) > _SHOWN_WHOLE:
                    each = each[:3]
                out.setdefault(row.core, []).extend(each)
        return {core: tuple(seconds) for core, seconds in out.items()}

    def steps_to_show(self, drawn: Container[int]) -> dict[int, tuple[float, ...]]:
        """Seconds of steps as a report carries them.

        Args:
            drawn: Cores that are drawn: each step of them counts. Of others with digests there are
                as few values as have the same quartiles, behind those of warm-up.
        """
        if len(self.cores) <= _SHOWN_WHOLE:
            return dict(self.step_seconds)
        whole: dict[int, list[float]] = {}
        for row in sorted(self.steps, key=lambda row: row.t0):
            if row.core in drawn and row.first is not None and row.last is not None:
                whole.setdefault(row.core, []).extend(_each(row))
        return {
            core: tuple(whole[core]) if core in whole else self._as_few(core, seconds)
            for core, seconds in self.step_seconds.items()
        }

    def _as_few(self, core: int, seconds: tuple[float, ...]) -> tuple[float, ...]:
        typical, settled = self.typical.get(core), seconds[WARMUP_EXECUTIONS:]
        if typical is None or not settled:
            return seconds
        low, high = [typical.low] * 2, [typical.high] * 2
        return (
            *seconds[:WARMUP_EXECUTIONS],
            *(min(settled), *low, typical.seconds, *high, max(settled)),
        )

    @functools.cached_property
    def core_summaries(self) -> tuple[CoreSummary, ...]:
        """Counts by core."""
        syncs, fallbacks = _by_core(self.syncs), _by_core(self.fallbacks)
        launches = _by_core(self.launches)
        moved: dict[int, list[StepRow]] = {}
        for row in self.steps:
            moved.setdefault(row.core, []).append(row)
        return tuple(
            CoreSummary(
                core=core,
                compilations=self.compilations_of(core),
                steps=self.steps_by_core.get(core),
                step_seconds_median=self._median_step(core),
                step_seconds_min=min(self._settled(core), default=None),
                step_seconds_max=max(self._settled(core), default=None),
                host_syncs=syncs[core],
                fallbacks=fallbacks[core],
                executions=launches[core],
                to_device=sum_known(row.to_device for row in moved.get(core, ())),
                from_device=sum_known(row.from_device for row in moved.get(core, ())),
                host=self.hosts.get(core),
            )
            for core in self.cores
        )

    def _median_step(self, core: int) -> float | None:
        if core in self.typical:
            return self.typical[core].seconds
        settled = self._settled(core)
        return statistics.median(settled) if settled else None

    def _settled(self, core: int) -> tuple[float, ...]:
        """Seconds of the steps of a core after warm-up."""
        return self.step_seconds.get(core, ())[WARMUP_EXECUTIONS:]


def _by_core(rows: Iterable[SyncRow | FallbackRow | LaunchRow]) -> collections.Counter[int]:
    counts: collections.Counter[int] = collections.Counter()
    for row in rows:
        counts[row.core] += row.count
    return counts


def _each(row: StepRow) -> list[float]:
    """Seconds of each step of a row, the slowest first where it is known."""
    count = (row.last or 0) - (row.first or 0) + 1
    total = row.t1 - row.t0
    if row.fastest is None or row.slowest is None or count < 2:
        return [total / count] * count
    ends = [row.slowest, row.fastest]
    rest = max(0.0, total - sum(ends))
    return [*ends, *[rest / (count - 2)] * (count - 2)] if count > 2 else ends


def sum_known(values: Iterable[_Number | None]) -> _Number | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
