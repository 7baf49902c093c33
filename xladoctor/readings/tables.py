"""The tidy tables that readings are: one frozen row type per kind of row.

None always means "not measured". Durations are seconds; times ``t*`` are seconds of the monotonic
clock of the machine that recorded them. ``process`` names the process's folder in its run
directory, which makes rows of several processes and runs distinct.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Finding
    from xladoctor.readings.sharding import CallRow, MeshRow, ShardingRow
    from xladoctor.readings.spmd_text import Regathered
    from xladoctor.readings.torchtpu_text import DeviceLog
    from xladoctor.results import Cause, MetricsReport

#: A frame as recorded: file, row, function.
Frame = tuple[str, int, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """What the launcher knows of the command; ``started`` and ``ended`` are unix seconds.

    ``left_behind``: processes that were there when the command had ended; None if not known.
    ``host``: which host of several the run directory is of; None if it is of one alone.
    """

    path: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    xladoctor: str | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    simulated_cores: int | None = None
    complete: bool = False
    left_behind: tuple[int, ...] | None = None
    host: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process that used torch_xla, or TorchTPU.

    Attributes:
        ended: Whether its record has its last row.
        since: When it imported either, or was forked from one that had; seconds of a clock that
            the processes of a host share.
        until: The time of the last row, on the same clock.
        parent: The process that has started it.
        t, time: One moment on that clock, and in unix seconds.
    """

    process: str
    pid: int | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    torch_xla: str | None = None
    torch_tpu: str | None = None
    device: str | None = None
    simulated_cores: int | None = None
    ended: bool = False
    since: float | None = None
    until: float | None = None
    parent: int | None = None
    t: float | None = None
    time: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceCacheRow:
    """What the compilation cache of a process has counted that ran operations one by one."""

    process: str
    requests: int | None
    hits: int | None
    compilations: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Typical:
    """A core's typical step after warm-up, where its rows are a digest.

    Attributes:
        seconds: Median of its steps.
        own: Median of what of a step is not spent waiting for the device or for other cores.
        steps: How many steps these are.
        low, high: Quartiles of its steps.
    """

    seconds: float
    own: float
    steps: int
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class CoreRow:
    """One core's share of the run.

    Attributes:
        iterations: Whether its steps are iterations of a loop without an optimizer (an evaluation).
        typical: Its typical step; None if its rows are whole and say it themselves.
    """

    process: str
    core: int
    started: float | None = None
    ended: float | None = None
    steps: int | None = None
    failed: bool | None = None
    iterations: bool = False
    typical: Typical | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StepRow:
    """A stretch of one core's time that covers the optimizer steps ``first`` to ``last``.

    Both are None for what came after the last step. ``parts`` are seconds by kind of work; ``held``
    is None where no graph held several steps of one optimizer. ``fastest`` and ``slowest`` are
    seconds of one step, where the row covers several and that was recorded.
    """

    process: str
    core: int
    first: int | None
    last: int | None
    t0: float
    t1: float
    parts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    to_device: int | None = None
    from_device: int | None = None
    held: Held | None = None
    fastest: float | None = None
    slowest: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Several steps of one optimizer in one graph: nothing had ended the graph between them.

    Attributes:
        steps: How many, at most, in the stretch.
        frames: Where the optimizer steps.
        trigger: What ended the graph ("read"; "end": the core's end).
    """

    steps: int
    frames: tuple[Frame, ...]
    trigger: str


@dataclasses.dataclass(frozen=True, slots=True)
class Feed:
    """The data loader that gave a core its last batch.

    Attributes:
        made: Where it was made; () if that was not seen.
        loop: Where the loop over it is.
        batch: Which batch of the pass it was, from 1.
        batches: How many a pass has; None if the loader does not know.
        over: Whether the pass had ended.
    """

    made: tuple[Frame, ...]
    loop: tuple[Frame, ...]
    batch: int
    batches: int | None = None
    over: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SyncRow:
    """Reads from one line in one stretch of steps: the host waited for the device.

    Attributes:
        seconds: How long the host waited; compilations that the reads triggered are not in it.
        compiled: New graphs that the reads had compiled.
        kinds: How many reads "compiled" a graph, "cut" the step (ended and ran a known graph),
            "waited" for the device, or were "free" (the value was ready).
        at: Start (``t0``) of the stretch of time that they are of.
    """

    process: str
    core: int
    first: int | None
    last: int | None
    frames: tuple[Frame, ...]
    what: str
    count: int
    seconds: float | None
    compiled: int | None = None
    kinds: Mapping[str, int] | None = None
    at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FallbackRow:
    """Runs of one operation on the CPU, from one line in one stretch of steps.

    Attributes:
        seconds: How long they held the host up; compilations that they triggered are not in it.
        fetched: Share of it (seconds) that fetching the inputs took. None in a run that was
            recorded without: there ``seconds`` is that of fetching alone.
        at: Start (``t0``) of the stretch of time that they are of.
    """

    process: str
    core: int
    first: int | None
    last: int | None
    frames: tuple[Frame, ...]
    operation: str
    count: int
    seconds: float | None
    fetched: float | None = None
    at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchRow:
    """Graphs that one line ended and ran in one stretch of steps."""

    process: str
    core: int
    first: int | None
    last: int | None
    frames: tuple[Frame, ...]
    trigger: str
    count: int
    seconds: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class CompilationRow:
    """A graph that was new for one core.

    Attributes:
        seconds: None if this core reused what another had compiled.
        modelled: Whether a real device would have compiled it, and the simulation did without.
        executions: How often this core had run this program point before.
        cause: Why it was new as the agent saw it, with the place already a location.
        hlo: Name under which the graph itself was kept in the process's folder.
        named: Variables of the user's frames to the shapes of their tensors.
        numbers: Python numbers of the user's frames, by the variable's name.
        histories: Variables of the user's frames to the numbers of the oldest and the newest
            operation that autograd remembers of them.
        cuts: Where reads and fallbacks had cut this step's graph before.
        piece: Which of the graphs it was, from 1, that ended at this point since the last optimizer
            step.
        fed: The data loader whose batch the core was at; None if it was at none.
        feeds_recorded: Whether the record says so at all: then no ``fed`` means no loader.
        at: Start (``t0``) of the stretch of time in which it was written; None if none followed.
    """

    process: str
    core: int
    step: int | None
    frames: tuple[Frame, ...]
    trigger: str | None
    seconds: float | None
    graph: str | None
    reused: bool = False
    modelled: bool = False
    executions: int | None = None
    inputs: int | None = None
    outputs: int | None = None
    cause: Cause | None = None
    hlo: str | None = None
    named: dict[str, str] | None = None
    numbers: dict[str, float] | None = None
    histories: dict[str, tuple[int, int]] | None = None
    cuts: tuple[tuple[Frame, ...], ...] = ()
    piece: int | None = None
    fed: Feed | None = None
    feeds_recorded: bool = False
    at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorRow:
    """An exception that left a core's main function, or the thread that loads its batches.

    Attributes:
        feeding: It was the thread that loads the batches; the core went on without them.
        whose: Whose fault it is on simulated cores: "program", "cpu" or "simulation"; None if the
            error does not tell.
        verdict: The same in words, with what shows it; None if there is nothing to say.
    """

    process: str
    core: int | None
    step: int | None
    type: str
    message: str
    traceback: str
    frames: tuple[Frame, ...]
    feeding: bool = False
    whose: str | None = None
    verdict: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HangRow:
    """Where one core stood when the cores could not go on.

    Attributes:
        state: "hang" (no progress), "core-left", "cores-differ", or "has ended".
        waits_for: What it waits in, in words; None if it does not wait for other cores.
        for_cores: The cores that had not come to it.
        steps: Its optimizer steps up to then.
        fed: The data loader that gave it its last batch.
        again: It had met the others before at this line, as in a loop.
    """

    process: str
    core: int | None
    t: float | None
    frames: tuple[Frame, ...]
    state: str | None
    waits_for: str | None
    for_cores: tuple[int, ...] = ()
    steps: int | None = None
    fed: Feed | None = None
    again: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Extra:
    """An operation that the graph of some cores has and that of the others has not.

    Attributes:
        operation: As torch or torch_xla names it ("aten::softmax").
        shape: Of its result.
        value: Of a constant.
        place: "train.py:40": the last part of the file's name, and the row.
    """

    operation: str
    shape: str = ""
    value: str | None = None
    place: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DivergenceRow:
    """A core was about to run another graph than those that it shares a collective with.

    Attributes:
        kind: "graphs"; "collectives" if one of them is in some cores' graphs only; "tags" for a
            rendezvous that the cores gave different names.
        what: In what graphs differ: "operations", "shapes", "constants", "shares" (each core cuts
            its own part out of the same tensors, by design) or "collectives".
        groups: The cores that have the same graph, group by group.
        differs: For each group what its graph has and that of the others has not.
        difference: The same in the words of the simulation.
    """

    process: str
    core: int | None
    message: str
    cores: tuple[int, ...] = ()
    step: int | None = None
    frames: tuple[Frame, ...] = ()
    cause_frames: tuple[Frame, ...] = ()
    kind: str = "graphs"
    what: str | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    differs: tuple[tuple[Extra, ...], ...] = ()
    difference: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class WeightDivergenceRow:
    """Cores whose weights were found to be different after a step (0: before the first)."""

    process: str
    message: str
    suggestion: str
    cores: tuple[int, ...]
    step: int | None
    frames: tuple[Frame, ...]
    cause_frames: tuple[Frame, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SilentRow:
    """What a check for training that is wrong without an error has seen on one core.

    Attributes:
        check: Its name: "gradient-cut", "no-gradient", "draws", "embedding", "labels", "buffers",
            "batches", "stale-optimizer", "updates", "difference", "samples", "norms",
            "sharded-clip" or "sharded-save".
        facts: What it knows besides; see the module of that check in ``capture/simulate/checks``.
    """

    process: str
    core: int | None
    step: int | None
    check: str
    frames: tuple[Frame, ...]
    facts: Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class ExitRow:
    """A call of ``os._exit``: by which core (None: by none) and where."""

    process: str
    core: int | None
    code: int | None
    frames: tuple[Frame, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeathRow:
    """A process that ended without its last record.

    Attributes:
        cores: Those that were running in it.
        step: The last one that one of its cores had recorded; None if none.
        reason: A signal's name, "os._exit", or None if nobody knows.
        code: What ``os._exit`` was given.
        core: Which core called it, if one did.
        frames: Where it was, innermost first; empty if that is not known.
        standing: They are those of a simulated core that waited while XLA aborted the process.
    """

    process: str
    pid: int | None
    cores: tuple[int, ...] = ()
    step: int | None = None
    reason: str | None = None
    code: int | None = None
    core: int | None = None
    frames: tuple[Frame, ...] = ()
    standing: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A run directory as tables; ``notes`` are sentences on what is missing.

    ``linted`` is what the linter said of its sources when they ran; None if nobody asked it.
    """

    manifest: Manifest
    processes: tuple[ProcessRow, ...] = ()
    cores: tuple[CoreRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    compilations: tuple[CompilationRow, ...] = ()
    syncs: tuple[SyncRow, ...] = ()
    fallbacks: tuple[FallbackRow, ...] = ()
    launches: tuple[LaunchRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    hangs: tuple[HangRow, ...] = ()
    divergences: tuple[DivergenceRow, ...] = ()
    weight_divergences: tuple[WeightDivergenceRow, ...] = ()
    silent: tuple[SilentRow, ...] = ()
    shardings: tuple[ShardingRow, ...] = ()
    spmd_calls: tuple[CallRow, ...] = ()
    meshes_refused: tuple[MeshRow, ...] = ()
    device_caches: tuple[DeviceCacheRow, ...] = ()
    deaths: tuple[DeathRow, ...] = ()
    metrics: tuple[MetricsReport, ...] = ()
    notes: tuple[str, ...] = ()
    linted: tuple[Finding, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DebugBlock:
    """One analysis block of PT_XLA_DEBUG.

    Attributes:
        kind: "compilation", "execution", "post-compilation" or "unexpected-execution".
        cause: The cause as printed, without backquotes.
        sizes: Bytes by label of a post compilation block ("Graph input size").
    """

    kind: str
    source: str
    cause: str | None = None
    graph: str | None = None
    inputs: int | None = None
    outputs: int | None = None
    frames: tuple[Frame, ...] = ()
    sizes: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def reads_value(self) -> bool:
        """Whether torch_xla puts it down to code that reads a value before the step's end."""
        return (self.cause or "").startswith("most likely")  # the only guess among its causes


@dataclasses.dataclass(frozen=True, slots=True)
class ProfilerLine:
    """A complaint of torch_xla's own analyzer (``pt-xla-profiler:``).

    Attributes:
        kind: "too-frequent", "too-slow" or "not-lowered".
        metric: The metric's name; None for operations.
        count, steps: Of "too-frequent": cumulative since the start of the process.
        seconds: Of "too-slow": the longest instance.
        operations: Of "not-lowered".
    """

    kind: str
    source: str
    metric: str | None = None
    count: int | None = None
    steps: int | None = None
    seconds: float | None = None
    operations: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class UnloweredSite:
    """A group of the frame summary that PT_XLA_DEBUG prints when the program ends.

    Attributes:
        operation: What ran on the CPU, with its namespace; None where torch_xla prints only that
            something did, be it an operation or the read of a value (2.9).
        frames: Innermost first.
    """

    operation: str | None
    source: str
    count: int
    frames: tuple[Frame, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Readings:
    """All that the given sources hold.

    Attributes:
        runs: Run directories.
        reports: Metrics reports from text, in the order in which they stand. Server metrics (Xrt*)
            are in them: they cover the life of the TPU worker and all cores, so a diagnosis never
            relates them to this process's steps.
        debug: PT_XLA_DEBUG blocks.
        profiler: Lines of torch_xla's own analyzer.
        unlowered: Its summary of the lines whose operations ran on the CPU.
        devices: What TorchTPU wrote to the logs of programs for it.
        regathered: XLA's complaints that two shardings do not fit, and how often each came.
        notes: What is cut or could not be read, in sentences.
        sources: The sources' names as given.
        shown: Names for the report in place of the run directories' own; () for these.
    """

    runs: tuple[Run, ...] = ()
    reports: tuple[MetricsReport, ...] = ()
    debug: tuple[DebugBlock, ...] = ()
    profiler: tuple[ProfilerLine, ...] = ()
    unlowered: tuple[UnloweredSite, ...] = ()
    devices: tuple[DeviceLog, ...] = ()
    regathered: tuple[tuple[Regathered, int], ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
