"""XLA702 device-memory-short: buffers are evicted and moved to make room (XRT)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

_EVENTS = ("XrtTryFreeMemory", "XrtCompaction", "XrtExecutorEvict")


def find(case: Case) -> Iterator[Finding]:
    """Server metrics count the TPU worker's life, so they are set against its own executions."""
    if case.pasted is None:
        return
    for state in case.pasted.states:
        events = {name: count for name in _EVENTS if (count := state.samples(name))}
        executions = state.samples("XrtExecute")
        if not events or not executions:
            continue
        if sum(events.values()) / executions > limits.MEMORY_EVENTS_PER_STEP:
            what = ", ".join(f"{name} {count:,}" for name, count in events.items())
            yield finding(
                "XLA702",
                f"device memory is short: {what} for {plural(executions, 'execution')} on the "
                "TPU worker; it is slow although nothing fails",
                "use a smaller batch, bfloat16, or gradient checkpointing",
                count=sum(events.values()),
                by="report",
            )
            return
