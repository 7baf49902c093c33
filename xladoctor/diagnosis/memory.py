"""XLA702 device-memory-short: buffers are evicted and moved to make room (XRT)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding

_EVENTS = ("XrtTryFreeMemory", "XrtCompaction", "XrtExecutorEvict")
_SUGGESTION = "use a smaller batch, bfloat16, or gradient checkpointing"


def find(case: Case) -> Iterator[Finding]:
    """At most one."""
    if case.pasted is None:
        return
    found = next(_from_states(case.pasted.states), None) or next(_from_profiler(case.pasted), None)
    if found is not None:
        yield found


def _from_states(states: Iterable[State]) -> Iterator[Finding]:
    """Server metrics count the TPU worker's life, so they are set against its own executions."""
    for state in states:
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
                _SUGGESTION,
                count=sum(events.values()),
                by="report",
            )


def _from_profiler(pasted: Pasted) -> Iterator[Finding]:
    """torch_xla's own analyzer complains from the same share of the steps on."""
    lines = [line for line in pasted.profiler if line.metric in _EVENTS and line.count]
    if lines:
        last = lines[-1]
        yield finding(
            "XLA702",
            f"device memory is short: {last.metric} {last.count:,} times during "
            f"{plural(last.steps or 0, 'step')} (pt-xla-profiler; those of earlier runs on this "
            "TPU included)",
            _SUGGESTION,
            count=last.count,
            by="report",
        )
