"""XLA601 input-bound: the cores wait for their data, or for its way to the device."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, noted, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import StepRow

#: What helps where the loader is slow in every step.
MORE_WORKERS = (
    "give the data loader more workers (num_workers, prefetch_factor, persistent_workers), and "
    "load through MpDeviceLoader, which sends batches ahead"
)

_KEEP_WORKERS = (
    "keep the workers of the data loader between epochs (persistent_workers=True), and look at "
    "what the first batches wait for"
)


def find(case: Case) -> Iterator[Finding]:
    """At most one from a run and one from reports."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        found = next((f for state in case.pasted.states for f in _from_state(state)), None)
        if found is not None:
            yield found


def _from_run(run: RunFacts) -> Iterator[Finding]:
    settled = [
        row for row in run.steps if row.first is not None and row.first > limits.WARMUP_EXECUTIONS
    ]
    total = sum(row.t1 - row.t0 for row in settled)
    waited = sum(row.parts.get("input_wait", 0.0) for row in settled)
    cores = {row.core for row in settled}
    if len(settled) < limits.STEPS_FOR_SHARES * len(cores) or total <= 0:
        return
    if waited / total < limits.INPUT_SHARE:
        return
    waiting = [
        row
        for row in settled
        if row.parts.get("input_wait", 0.0) >= limits.INPUT_SHARE * (row.t1 - row.t0) > 0
    ]
    seconds = waited / len(cores)
    seldom = _seldom(settled, waiting)
    bound = len(waiting) / len(cores)
    made = loader(run)
    yield finding(
        "XLA601",
        f"the cores waited for their input {waited / total:.0%} of the time after warm-up "
        f"({duration(seconds)} per core)"
        + (f", nearly all of it in {plural(round(bound), 'step')} of a core" if seldom else ""),
        _KEEP_WORKERS if seldom else MORE_WORKERS,
        at=made[0] if made else None,
        related=made[1:],
        seconds=seconds,
        cores=cores,
    )


def _seldom(settled: list[StepRow], waiting: list[StepRow]) -> bool:
    """Whether cores wait in few steps: for workers that start anew in each epoch, for example.

    A device loader takes several batches together, and is waited for once in so many steps.
    """
    if len(waiting) * 2 >= len(settled):
        return False
    firsts: dict[int, list[int]] = {}
    for row in waiting:
        firsts.setdefault(row.core, []).append(row.first or 0)
    gaps = [
        after - before
        for steps in firsts.values()
        for before, after in itertools.pairwise(sorted(steps))
    ]
    return not gaps or statistics.median(gaps) > limits.BATCHES_TAKEN_TOGETHER


def loader(run: RunFacts) -> list[Location]:
    """Where the loader that feeds the steps is made, and the loop over it; empty if not known."""
    feeds = [item.fed for item in run.compilations if item.fed is not None]
    ends = [
        item.fed for item in run.compilations if item.fed is not None and item.trigger == "step"
    ]
    feed = next((one for one in (*ends, *feeds) if one.made is not None), None)
    if feed is None or feed.made is None:
        return []
    loop = [] if feed.loop is None else [noted(feed.loop, "the loop over it")]
    return [noted(feed.made, "the loader is made here"), *loop]


def _from_state(state: State) -> Iterator[Finding]:
    # Under PJRT TransferToDeviceTime is the time to enqueue only; the old name is XRT's.
    uploads = state.metric("TransferToServerTime")
    if uploads is None or uploads.accumulator is None or state.too_early:
        return
    if sum(state.fallbacks.values()) >= limits.CAUSED_BY_FALLBACKS * (uploads.total_samples or 0):
        return  # these are the results of operations that ran on the CPU, on their way back
    seconds = uploads.accumulator
    others = [
        state.execute_seconds,
        state.seconds("TransferFromServerTime"),
        state.seconds("CompileTime"),
    ]
    if seconds < limits.WORTH_SECONDS or all(value is None for value in others):
        return
    share = seconds / (seconds + sum(value for value in others if value is not None))
    if share >= limits.UPLOAD_SHARE:
        yield finding(
            "XLA601",
            f"{plural(uploads.total_samples or 0, 'upload')} took {duration(seconds)}, more than "
            "all that the device did in that time: the link or the input is the bottleneck",
            "send less (uint8 images, bfloat16), create constants on the device once, and load "
            "through MpDeviceLoader, which sends batches ahead",
            count=uploads.total_samples,
            seconds=seconds,
            by="report",
        )
