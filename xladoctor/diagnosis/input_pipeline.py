"""XLA601 input-bound: the cores wait for their data, or for its way to the device."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding

_SUGGESTION = (
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
    shares = [
        row.parts.get("input_wait", 0.0) / (row.t1 - row.t0) for row in settled if row.t1 > row.t0
    ]
    seconds = waited / len(cores)
    # In fewer than half of the steps: workers that start anew in each epoch, or a slow first batch.
    seldom = statistics.median(shares) < limits.INPUT_SHARE
    bound = sum(share >= limits.INPUT_SHARE for share in shares) / len(cores)
    yield finding(
        "XLA601",
        f"the cores waited for their input {waited / total:.0%} of the time after warm-up "
        f"({duration(seconds)} per core)"
        + (f", nearly all of it in {plural(round(bound), 'step')} of a core" if seldom else ""),
        _KEEP_WORKERS if seldom else _SUGGESTION,
        seconds=seconds,
        cores=cores,
    )


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
