"""Metrics reports and debug text, reduced to the numbers that diagnoses ask for.

Server values (Xrt*) are never related to steps here: they cover the life of the TPU worker.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xladoctor.readings.spmd_text import Regathered
    from xladoctor.readings.tables import DebugBlock, ProfilerLine, Readings, UnloweredSite
    from xladoctor.readings.torchtpu_text import DeviceLog
    from xladoctor.results import Metric, MetricsReport

#: ``item()`` and implicit bool: a read, not a missing lowering. U.
SCALAR_READ = "aten::_local_scalar_dense"

_FALLBACK_SPACES = ("aten::", "torchvision::", "torchaudio::", "quantized::")


@dataclasses.dataclass(frozen=True, slots=True)
class Pasted:
    """What was pasted: the state of each source's process, and debug text."""

    states: tuple[State, ...]
    debug: tuple[DebugBlock, ...] = ()
    profiler: tuple[ProfilerLine, ...] = ()
    unlowered: tuple[UnloweredSite, ...] = ()
    devices: tuple[DeviceLog, ...] = ()
    regathered: tuple[tuple[Regathered, int], ...] = ()

    @property
    def main(self) -> State | None:
        """The state that shows most; the sources are the cores of one run and much alike."""
        return max(
            self.states,
            key=lambda state: len(state.metrics) + len(state.counters),
            default=None,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One process's metrics: the last report of its series, and the one it began with.

    Attributes:
        metrics, counters: Cumulative, as of the last report.
        before: An earlier report of the series, after warm-up; then differences are known.
        step: Step of ``[MetricsData; step=N]`` of the last report.
        live: Whether xladoctor recorded it, rather than somebody pasting it.
    """

    source: str
    core: int | None
    metrics: Mapping[str, Metric]
    counters: Mapping[str, int]
    before: MetricsReport | None = None
    step: int | None = None
    live: bool = False

    @property
    def by(self) -> str:
        """For ``confirmed_by`` of findings."""
        return "runtime" if self.live else "report"

    def metric(self, *names: str) -> Metric | None:
        """The first of some metrics (new name, old name) that is there."""
        return next((self.metrics[name] for name in names if name in self.metrics), None)

    def samples(self, *names: str) -> int | None:
        """Number of samples of a metric; None when it is not in the report."""
        metric = self.metric(*names)
        return metric.total_samples if metric else None

    def seconds(self, *names: str) -> float | None:
        """Accumulated seconds of a time metric."""
        metric = self.metric(*names)
        return metric.accumulator if metric and metric.unit == "s" else None

    def counter(self, *names: str) -> int | None:
        """The first of some counters that is there."""
        return next((self.counters[name] for name in names if name in self.counters), None)

    @property
    def steps(self) -> int | None:
        """``MarkStep``, else by the series' header; None when both are missing.

        ``[MetricsData; step=N]`` counts from 0 and is written after the step's end. U
        (metrics_saver.py).
        """
        return _steps(self.counters, self.step)

    @property
    def new_graphs(self) -> int | None:
        """Graph-cache misses, else compile calls."""
        count = self.counter("UncachedCompile", "UncachedSyncTensors")
        if count is None:
            count = self.samples("CompileTime")
        return self.counter("CreateCompileHandles") if count is None else count

    @property
    def reused_graphs(self) -> int | None:
        """Graph-cache hits."""
        return self.counter("CachedCompile", "CachedSyncTensors")

    @property
    def executions(self) -> int | None:
        """Graphs that ran, on one device or replicated."""
        counts = [self.samples("ExecuteTime"), self.samples("ExecuteReplicatedTime")]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    @property
    def execute_seconds(self) -> float | None:
        """Seconds of all executions."""
        known = [
            seconds
            for seconds in (self.seconds("ExecuteTime"), self.seconds("ExecuteReplicatedTime"))
            if seconds is not None
        ]
        return sum(known) if known else None

    @property
    def scalar_reads(self) -> int | None:
        """Runs of ``item()`` and the like, by counter."""
        return self.counters.get(SCALAR_READ)

    @property
    def reads(self) -> int | None:
        """Reads of device values, by metric."""
        inbound = self.samples("InboundData")
        if inbound is not None:
            return inbound
        return self.samples("TransferFromDeviceTime", "TransferFromServerTime")

    @property
    def fallbacks(self) -> dict[str, int]:
        """Operations that ran on the CPU, the most frequent first."""
        found = {
            name: count
            for name, count in self.counters.items()
            if name.startswith(_FALLBACK_SPACES) and name != SCALAR_READ and count > 0
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def too_early(self) -> bool:
        """Whether only set-up has run: few steps, and no graph has been needed twice."""
        steps, graphs, executions = self.steps, self.new_graphs, self.executions
        if steps is not None and steps > limits.EARLY_STEPS:
            return False
        if steps is not None and max(graphs or 0, executions or 0) < limits.FEWEST_SAMPLES:
            return True
        if self.reused_graphs is not None or self.step is not None:
            return False
        if graphs is None or executions is None or executions > graphs:
            return False
        if executions < limits.FEWEST_SAMPLES:
            return True
        return executions < limits.SETUP_GRAPHS and self._typical_compilation < (
            limits.REAL_GRAPH_SECONDS
        )

    @property
    def _typical_compilation(self) -> float:
        """Seconds; the median, as one real graph among those of set-up makes the mean large."""
        metric = self.metric("CompileTime")
        if metric is None:
            return 0.0
        if "50" in metric.percentiles:
            return metric.percentiles["50"]
        return (metric.accumulator or 0.0) / (metric.total_samples or 1)

    @property
    def covered_seconds(self) -> float | None:
        """Wall time between the first and the last execution, from what is printed of its rate.

        Rate is the number of kept samples (1,024 at most) by the time between the first and the
        last of them. U (metrics.cpp).
        """
        metric = self.metric("ExecuteTime", "ExecuteReplicatedTime")
        if metric is None or not metric.rate or metric.total_samples is None:
            return None
        if not limits.FEWEST_SAMPLES <= metric.total_samples <= limits.KEPT_SAMPLES:
            return None
        return metric.total_samples / metric.rate

    def grown(self, *names: str) -> int | None:
        """By how much a counter or a metric's samples grew since ``before``.

        None also if it shrank: one of the two reports is damaged.
        """
        old = self._old
        if old is None:
            return None
        now, then = self.counter(*names), old.counter(*names)
        if now is None:
            now, then = self.samples(*names), old.samples(*names)
        return None if now is None or now < (then or 0) else now - (then or 0)

    @property
    def grown_steps(self) -> int | None:
        """By how many steps the last report is later than ``before``."""
        old, now = self._old, self.steps
        then = old.steps if old is not None else None
        return None if now is None or then is None else now - then

    def grown_seconds(self, name: str) -> float | None:
        """By how many seconds a time metric grew since ``before``."""
        old = self._old
        if old is None:
            return None
        now, then = self.seconds(name), old.seconds(name)
        return None if now is None else now - (then or 0.0)

    @property
    def _old(self) -> State | None:
        before = self.before
        if before is None:
            return None
        return State(self.source, self.core, before.metrics, before.counters, step=before.step)


def pasted(readings: Readings) -> Pasted | None:
    """Gather what was pasted; None if nothing was."""
    states = states_of(readings.reports)
    found = Pasted(
        states, readings.debug, readings.profiler, readings.unlowered, readings.devices,
        readings.regathered,
    )  # fmt: skip
    debug = found.debug or found.profiler or found.unlowered
    return found if states or debug or found.devices or found.regathered else None


def states_of(reports: Iterable[MetricsReport], *, live: bool = False) -> tuple[State, ...]:
    """One state a process: reports of the same source and core are a series, or parts of one."""
    series: dict[tuple[str, int | None], list[MetricsReport]] = {}
    for report in reports:
        series.setdefault((report.source, report.core), []).append(report)
    return tuple(_state(items, live) for items in series.values())


def _state(reports: list[MetricsReport], live: bool) -> State:
    """The last report of the last program; parts that were pasted one by one are put together."""
    last = reports[-1]
    start = len(reports) - 1
    while start > 0 and _continues(reports[start - 1], reports[start]):
        start -= 1  # before that another program wrote to the same file
    metrics, counters = dict(last.metrics), dict(last.counters)
    if start == len(reports) - 1:
        for report in reversed(reports[:-1]):
            if report.metrics.keys() & metrics.keys() or report.counters.keys() & counters.keys():
                break
            metrics = {**report.metrics, **metrics}
            counters = {**report.counters, **counters}
    before = _after_warmup(reports[start:])
    return State(last.source, last.core, metrics, counters, before, last.step, live)


def _after_warmup(series: list[MetricsReport]) -> MetricsReport | None:
    """The report against which the last is set: the newest of the first half of the steps.

    One from the start of the program would count its warm-up among the differences.
    """
    last = _steps(series[-1].counters, series[-1].step)
    found = None
    for index, report in enumerate(series[:-1]):
        steps = _steps(report.counters, report.step)
        if steps is None or last is None:
            early, half = False, index * 2 <= len(series)
        else:
            early, half = steps <= limits.EARLY_STEPS, steps * 2 <= last
        if not early and (half or found is None):
            found = report
    return found


def _steps(counters: Mapping[str, int], step: int | None) -> int | None:
    steps = counters.get("MarkStep")
    return step + 1 if steps is None and step is not None else steps


def _continues(first: MetricsReport, last: MetricsReport) -> bool:
    """Whether a report continues another: names in common, and nothing has shrunk."""
    pairs: list[tuple[int, int]] = [
        (first.counters[name], last.counters[name])
        for name in first.counters
        if name in last.counters
    ]
    for name in first.metrics:
        old, new = first.metrics[name], last.metrics.get(name)
        if new is not None and old.total_samples is not None and new.total_samples is not None:
            pairs.append((old.total_samples, new.total_samples))
    return bool(pairs) and all(old <= new for old, new in pairs)
