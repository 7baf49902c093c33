"""What is known about one run (or one pasted report): the type that every report format shows.

``diagnosis`` makes a :class:`Report` from readings; ``report`` turns it into text, JSON or HTML.
The JSON of ``xladoctor report --output-format json`` has exactly these names (see
:func:`to_json`). None always means "not measured"; 0 means "measured, and there was none".
Times are seconds on the wall clock.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from xladoctor import costs, shardings
from xladoctor.findings import fix_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Finding, Location
    from xladoctor.graphs import Diff
    from xladoctor.timeline import Timeline

SCHEMA_VERSION = 1

#: Sizes of a tensor before and after, in the words of a cause ("f32[16,24] -> f16[16,24]").
_CHANGE = re.compile(r"\w+\[([\d,]*)\] -> \w+\[([\d,]*)\]")

#: Kinds of cause of a compilation; the words are part of the public JSON.
CAUSE_KINDS = (
    "first-graph",
    "input-shape",
    "op-changed",
    "constant-changed",
    "live-tensors-changed",
    "host-sync-split",
    "graph-grew",
    "core-divergence",
    "unknown",
)


@dataclasses.dataclass(frozen=True, slots=True)
class TimeParts:
    """Where the wall time of a core went, in seconds (mean over the cores).

    All parts but ``total`` add up to ``total``; a part is None when it could not be measured.
    """

    total: float | None = None
    compile: float | None = None
    execute: float | None = None
    input_wait: float | None = None
    host_sync: float | None = None
    trace: float | None = None
    fallback: float | None = None
    other: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The answer in short: verdict, why and next, then the counts.

    Attributes:
        verdict: One sentence that says how the run is.
        why: One sentence with the evidence.
        next: One sentence that says what to do first.
        cores: Number of cores seen.
        steps: Optimizer steps of one core (the largest number over the cores).
        compilations: New graphs of one core (the largest number over the cores).
        compilations_after_warmup: Those after the first three executions of their program point.
        fallbacks: Operation to number of runs on the CPU, summed over the cores.
        host_syncs: Reads that made the host wait, summed over the cores.
        seconds: Where the time went.
        within_other: What ``seconds.other`` holds, in seconds: "core_wait" (waiting for other
            cores) and "transfer" (sending tensors to the device); None when not known.
        conclusive: False if it is too early or too little to tell: no problem was found, and
            nothing says that there is none.
    """

    verdict: str
    why: str
    next: str
    cores: int | None = None
    steps: int | None = None
    compilations: int | None = None
    compilations_after_warmup: int | None = None
    fallbacks: Mapping[str, int] | None = None
    host_syncs: int | None = None
    seconds: TimeParts = dataclasses.field(default_factory=TimeParts)
    within_other: Mapping[str, float] | None = None
    conclusive: bool = True

    @property
    def syncs_per_step(self) -> float | None:
        """Reads of one core in one step; None where one of these was not counted."""
        if self.host_syncs is None or not self.steps or not self.cores:
            return None
        return self.host_syncs / (self.steps * self.cores)


@dataclasses.dataclass(frozen=True, slots=True)
class CoreSummary:
    """What one core did.

    Attributes:
        step_seconds_median: Over its steps after warm-up.
        step_seconds_min, step_seconds_max: The fastest and the slowest of these.
        executions: Graphs that ran.
        to_device: Tensors that the program sent to the device (``.to``, ``copy_``, device loaders);
            numbers and constants that torch_xla sends while it traces are not among them.
        from_device: Tensors that reads and fallbacks fetched.
        host: Which host it is on, in a run of several.
    """

    core: int
    compilations: int | None = None
    steps: int | None = None
    step_seconds_median: float | None = None
    host_syncs: int | None = None
    fallbacks: int | None = None
    executions: int | None = None
    to_device: int | None = None
    from_device: int | None = None
    step_seconds_min: float | None = None
    step_seconds_max: float | None = None
    host: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class AlikeCores:
    """Cores that did the same.

    Attributes:
        cores: The cores.
        hosts: Their hosts, in a run of several.
        differs: What is different from the largest group, in words; "" for that one.
        step_seconds_median: Median of their typical steps.
        steps, compilations, host_syncs, fallbacks, executions: Of one of them (the median).
    """

    cores: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    differs: str = ""
    step_seconds_median: float | None = None
    steps: int | None = None
    compilations: int | None = None
    host_syncs: int | None = None
    fallbacks: int | None = None
    executions: int | None = None


#: What a read of a device value was, as the fields of :class:`Reads` are called.
KINDS_OF_READ = ("compiled", "cut", "waited", "free")


@dataclasses.dataclass(frozen=True, slots=True)
class Reads:
    """The reads of device values that one line made on one core.

    Attributes:
        location: The line.
        what: How it reads ("item", "cpu").
        core: The core.
        count: How many.
        seconds: How long they held the core up, their compilations left out.
        compiled: How many of them compiled a graph of their own first.
        cut: ... ended the step's graph early and ran it (a known graph).
        waited: ... waited for the device.
        free: ... found the value ready.
    """

    location: Location | None
    what: str
    core: int
    count: int
    seconds: float | None
    compiled: int | None = None
    cut: int | None = None
    waited: int | None = None
    free: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fallbacks:
    """The runs on the CPU of one operation that one line called on one core.

    Attributes:
        location: The line.
        operation: As torch names it ("aten::nonzero").
        core: The core.
        count: How many.
        seconds: How long they held the core up: fetching the inputs, computing on the CPU, sending
            the results back; their compilations left out.
        fetch_seconds: Of that, fetching the inputs; None if ``seconds`` is fetching alone.
    """

    location: Location | None
    operation: str
    core: int
    count: int
    seconds: float | None
    fetch_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """Why a graph was new: a kind of :data:`CAUSE_KINDS`, what differs, the line that made it."""

    kind: str
    detail: str = ""
    location: Location | None = None

    @property
    def other_type(self) -> bool:
        """Whether inputs have changed their type and nothing else."""
        changes = _CHANGE.findall(self.detail) if self.kind == "input-shape" else []
        return bool(changes) and all(old == new for old, new in changes)


@dataclasses.dataclass(frozen=True, slots=True)
class Feed:
    """The data loader whose batch a core was at.

    Attributes:
        made: Where the loader is made; None if that was not seen.
        loop: The loop over it.
        last: Whether it was the last batch of the pass; None if the loader knows no number.
    """

    made: Location | None
    loop: Location | None
    last: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Compilation:
    """One graph that was new, with all the cores for which it was new.

    Attributes:
        cores: The cores.
        step: Step in which it was first needed, from 1; 0 before the first step.
        seconds: Duration of the compilation; None when not measured.
        graph: Hash of the graph, as torch_xla names it, or ours; None when not known.
        location: The user's line that ended the graph (the program point).
        cause: Why the graph was new.
        after_warmup: Whether it came after the first three executions of its program point.
        modelled: Whether real devices would have compiled it, and simulated cores did without.
        trigger: What ended the graph: "step" (a step's end), "sync" (a sync that ends no step),
            "read", "fallback", "loader" (a device loader), "eager" (eager mode compiles each
            operation) or "library" (``xm.save``, dynamo ...).
        via: The package and function that did it, if it was no line of the user's
            ("lightning.optimizer_step").
        fed: The loader whose batch the graph is of; None for none.
        feeds_recorded: Whether the record says so: then no ``fed`` means that there was no loader.
    """

    cores: tuple[int, ...]
    step: int | None
    seconds: float | None
    graph: str | None
    location: Location | None
    cause: Cause
    after_warmup: bool | None = None
    modelled: bool = False
    trigger: str | None = None
    via: str | None = None
    fed: Feed | None = None
    feeds_recorded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a torch_xla metrics report; values in ``unit`` ("s", "B" or "").

    ``total_samples`` and ``accumulator`` are since the start; ``percentiles``, ``value_rate``
    (units a second) and ``rate`` (samples a second) are of the last 1,024 samples at most. Only
    server metrics (XRT) print a ``mean``.
    """

    total_samples: int | None
    accumulator: float | None
    unit: str
    percentiles: Mapping[str, float] = dataclasses.field(default_factory=dict)
    value_rate: float | None = None
    rate: float | None = None
    mean: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsReport:
    """One metrics report: which source, core and step it is of, its metrics and counters."""

    source: str
    core: int | None = None
    step: int | None = None
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class SourceText:
    """The rows of a file; ``changed``: it was saved after the run had begun."""

    lines: tuple[str, ...]
    changed: bool = False


#: Up to so many cores are shown one by one, and of a group of cores that did the same so many.
DRAWN_WHOLE, DRAWN_OF_A_GROUP = 32, 4


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report shows.

    Attributes:
        summary: The answer in short.
        cores: Per core.
        compilations: In the order in which they happened.
        metrics: The metrics reports that were read.
        findings: In the order of ``diagnosis/ranking.py``, the first to be read first.
        about: How the report came about, as label to text (command, versions, date, cores).
        reads: Reads of device values by line and core.
        fallbacks: Operations on the CPU by line and core.
        notes: What could not be measured or read, in sentences.
        steps: Per-step wall seconds per core, for charts: core to list; empty when not measured.
        simulated: Whether the cores were simulated on the CPU: then seconds are not a device's.
        tpu: What the run would cost on TPU targets; None if that was not asked.
        sharding: What lies where in an SPMD program; None in any other.
        timeline: What each core did along the time; None where only text was read.
        sources: Text of the user's files by name, for the page; empty where it was not asked for.
        alike: The cores in groups that did the same, the largest first; empty for one core.
        diffs: What differs between new graphs and those before, for the page.
    """

    summary: Summary
    cores: tuple[CoreSummary, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    metrics: tuple[MetricsReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    about: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    steps: Mapping[int, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    reads: tuple[Reads, ...] = ()
    fallbacks: tuple[Fallbacks, ...] = ()
    simulated: bool = False
    tpu: tuple[costs.TargetCost, ...] | None = None
    sharding: shardings.Sharding | None = None
    timeline: Timeline | None = None
    sources: Mapping[str, SourceText] = dataclasses.field(default_factory=dict)
    diffs: tuple[Diff, ...] = ()
    alike: tuple[AlikeCores, ...] = ()

    @property
    def drawn(self) -> tuple[int, ...]:
        """The cores that are shown one by one: all, or of many those that are unlike the others.

        Of the largest group of cores that did the same the first stands for all of them.
        """
        every = tuple(core.core for core in self.cores)
        if len(every) <= DRAWN_WHOLE or not self.alike:
            return every
        few = [core for group in self.alike[1:] for core in group.cores[:DRAWN_OF_A_GROUP]]
        return tuple(sorted({self.alike[0].cores[0], *few[: DRAWN_WHOLE - 1]}))


def location_to_json(location: Location | None) -> dict[str, Any] | None:
    """A runtime place as the contract writes it: filename, row, function and, if any, more."""
    if location is None:
        return None
    out: dict[str, Any] = {
        "filename": location.filename,
        "row": location.row,
        "function": location.function,
    }
    if location.column is not None:
        out["column"] = location.column
    if location.cell is not None:
        out["cell"] = location.cell
    return out


def related_to_json(place: Location) -> dict[str, Any]:
    """A further place of a finding, with what it has to do with it."""
    out = location_to_json(place)
    assert out is not None
    return {**out, "message": place.note}


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding of a run, as ``report --output-format json`` writes it."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "locations": [location_to_json(place) for place in finding.locations],
        "related": [related_to_json(place) for place in finding.related],
        "count": finding.count,
        "seconds": finding.seconds,
        "cores": list(finding.cores),
        "confirmed_by": list(finding.confirmed_by),
        "ran": finding.ran,
        "fix": fix_to_json(finding.fix),
        "tpu_seconds": finding.tpu_seconds,
    }


def to_json(report: Report) -> dict[str, Any]:
    """The report as the one JSON object that the contract fixes (more keys may be added)."""
    summary = report.summary
    return {
        "schema_version": SCHEMA_VERSION,
        "summary": {
            "verdict": summary.verdict,
            "why": summary.why,
            "next": summary.next,
            "cores": summary.cores,
            "steps": summary.steps,
            "compilations": summary.compilations,
            "compilations_after_warmup": summary.compilations_after_warmup,
            "fallbacks": None if summary.fallbacks is None else dict(summary.fallbacks),
            "host_syncs": summary.host_syncs,
            "seconds": dataclasses.asdict(summary.seconds),
            "within_other": None if summary.within_other is None else dict(summary.within_other),
            "conclusive": summary.conclusive,
        },
        "cores": [dataclasses.asdict(core) for core in report.cores],
        "alike": [dataclasses.asdict(group) for group in report.alike],
        "compilations": [_compilation_to_json(item) for item in report.compilations],
        "steps": [] if report.timeline is None else report.timeline.to_json(),
        "reads": [_counted_to_json(item) for item in report.reads],
        "fallbacks": [_counted_to_json(item) for item in report.fallbacks],
        "metrics": [_metrics_to_json(item) for item in report.metrics],
        "findings": [finding_to_json(finding) for finding in report.findings],
        "about": dict(report.about),
        "notes": list(report.notes),
        "sharding": None
        if report.sharding is None
        else shardings.to_json(report.sharding, location_to_json),
        "tpu": None if report.tpu is None else [costs.to_json(cost) for cost in report.tpu],
    }


def _compilation_to_json(item: Compilation) -> dict[str, Any]:
    return {
        "cores": list(item.cores),
        "step": item.step,
        "seconds": item.seconds,
        "graph": item.graph,
        "location": location_to_json(item.location),
        "cause": {
            "kind": item.cause.kind,
            "detail": item.cause.detail,
            "location": location_to_json(item.cause.location),
        },
        "after_warmup": item.after_warmup,
        "modelled": item.modelled,
        "trigger": item.trigger,
        "via": item.via,
    }


def _counted_to_json(item: Reads | Fallbacks) -> dict[str, Any]:
    return dataclasses.asdict(item) | {"location": location_to_json(item.location)}


def _metrics_to_json(item: MetricsReport) -> dict[str, Any]:
    return {
        "source": item.source,
        "core": item.core,
        "step": item.step,
        "metrics": {
            name: {
                "total_samples": metric.total_samples,
                "accumulator": metric.accumulator,
                "unit": metric.unit,
                "percentiles": dict(metric.percentiles),
                "value_rate": metric.value_rate,
                "rate": metric.rate,
                "mean": metric.mean,
            }
            for name, metric in item.metrics.items()
        },
        "counters": dict(item.counters),
    }
