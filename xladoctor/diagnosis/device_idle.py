"""XLA601 input-bound, from pasted metrics: the device has nothing to do and the host never waits.

What the metrics tell is the wall time of a stretch of the program, and how much of it was execution
and compilation. The rest is the host's, if ``DeviceLockWait`` says that the host never waited for
the device. Only a stretch that set-up is not part of counts: loading data before the first step
leaves the device idle too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from xladoctor.amounts import size
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding
    from xladoctor.results import Metric


_EXECUTIONS = ("ExecuteTime", "ExecuteReplicatedTime")


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a program after its set-up; all times in seconds.

    Attributes:
        executions: Graphs that ran in it.
        wall: From its first execution to its last.
        executed, compiled, waited: Execution, compilation (at most) and the host's wait for the
            device (at most) in it.
    """

    executions: int
    wall: float
    executed: float
    compiled: float
    waited: float

    @property
    def idle(self) -> float:
        """Seconds in which the device neither executed nor was waited for by a compilation."""
        return self.wall - self.executed - self.compiled


def find(case: Case) -> Iterator[Finding]:
    """At most one, from pasted text.

    Times of simulated cores are not those of a device, and of a recorded run the wait for input
    itself is known (:mod:`xladoctor.diagnosis.input_pipeline`).
    """
    for state in case.pasted.states if case.pasted is not None else ():
        stretch = stretch_of(state)
        if stretch is None or not math.isfinite(stretch.wall):
            continue
        if _explained_otherwise(state, stretch):
            continue
        if stretch.idle < max(limits.WORTH_SECONDS, limits.IDLE_SHARE * stretch.wall):
            continue
        if stretch.waited > limits.IDLE_LOCK_SHARE * stretch.idle:
            continue
        sent = state.metric("OutboundData")
        large = sent.percentiles.get("95") if sent else None
        heavy = large is not None and large >= limits.LARGE_UPLOAD_BYTES
        uploads = f"; uploads reach {size(large)}" if heavy and large is not None else ""
        yield finding(
            "XLA601",
            f"in the {duration(stretch.wall)} of the last "
            f"{plural(stretch.executions, 'execution')} the device executed "
            f"{duration(stretch.executed)} and the host waited {duration(stretch.waited)} for it "
            f"(DeviceLockWait): {stretch.idle / stretch.wall:.0%} of the time it had nothing to "
            f"do{uploads}",
            "give the data loader more workers and load through MpDeviceLoader, which sends "
            f"batches ahead{'; send less (uint8 images, bfloat16)' if heavy else ''}; if input is "
            "not the cause, py-spy dump --pid shows what else the host does between steps",
            count=stretch.executions,
            seconds=stretch.idle,
            by="report",
        )
        return


def stretch_of(state: State) -> Stretch | None:
    """The last stretch without set-up: between two reports, or that of the kept samples.

    A printed rate is the number of kept samples by the time between the first and the last of them
    (U, metrics.cpp): with all samples kept it gives the time since the first execution, so two
    reports give what came between. None if the text does not tell.
    """
    names = [name for name in _EXECUTIONS if name in state.metrics]
    lock = state.seconds("DeviceLockWait")
    if len(names) != 1 or lock is None:
        return None  # two kinds of executions may overlap
    execute = state.metrics[names[0]]
    if execute.unit != "s" or not execute.rate or execute.total_samples is None:
        return None
    compiled = state.seconds("CompileTime") or 0.0
    if execute.total_samples > limits.KEPT_SAMPLES:
        if execute.value_rate is None:
            return None
        wall = limits.KEPT_SAMPLES / execute.rate
        return Stretch(limits.KEPT_SAMPLES, wall, execute.value_rate * wall, compiled, lock)
    before = state.before.metrics.get(names[0]) if state.before is not None else None
    if before is None:
        return None
    return _between(state, names[0], before, execute)


def _between(state: State, name: str, before: Metric, execute: Metric) -> Stretch | None:
    executed, waited = state.grown_seconds(name), state.grown_seconds("DeviceLockWait")
    if not before.rate or not execute.rate or executed is None or waited is None:
        return None
    then, now = before.total_samples or 0, execute.total_samples or 0
    wall = now / execute.rate - then / before.rate
    if now - then < limits.STEADY_STEPS or wall <= 0:
        return None
    compiled = state.grown_seconds("CompileTime") or 0.0
    return Stretch(now - then, wall, executed, compiled, waited)


def _explained_otherwise(state: State, stretch: Stretch) -> bool:
    """Whether something else that leaves the device idle is there, or cannot be ruled out.

    ``MarkStep`` stands behind the metrics of transfers in every version: with it in sight, no
    reads shown means none.
    """
    steps, executions = state.steps, state.executions
    if not steps or not executions or steps < limits.STEADY_STEPS:
        return True
    if (state.reads or 0) >= limits.READS_PER_EXECUTION * executions:
        return True
    if (state.scalar_reads or 0) >= limits.READS_PER_STEP * steps:
        return True
    if sum(state.fallbacks.values()) >= limits.READS_PER_STEP * steps:
        return True
    tracing = (state.seconds("LazyTracing") or 0.0) * stretch.executions / executions
    return tracing >= limits.IDLE_SHARE * stretch.idle


def device_bound(state: State) -> bool:
    """Whether the host waits for the device most of the time that it executes: as it should be."""
    waited, executed = state.seconds("DeviceLockWait"), state.execute_seconds
    if waited is None or not executed or (state.executions or 0) < limits.STEADY_STEPS:
        return False
    return waited >= limits.BUSY_LOCK_SHARE * executed
