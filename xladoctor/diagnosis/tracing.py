"""XLA602 tracing-bound: the host needs longer to trace a step than the device to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

#: torch_xla.compile is no remedy: it calls the function, and so traces it, in each step (2.9).
LESS_TRACING = (
    "use a larger batch; torch.compile(model, backend='openxla') traces the forward and backward "
    "pass once, scan_layers(layers, x, is_layer_pure=True) equal layers once (torch_xla.compile "
    "traces in each step)"
)


def find(case: Case) -> Iterator[Finding]:
    """From reports only: on simulated cores the CPU does both, and the two cannot be compared."""
    if case.pasted is None:
        return
    for state in case.pasted.states:
        tracing = state.metric("LazyTracing")
        if tracing is None or tracing.accumulator is None or state.too_early:
            continue
        seconds, executed = tracing.accumulator, state.execute_seconds
        if seconds < limits.WORTH_SECONDS:
            continue
        lock = state.seconds("DeviceLockWait")
        if executed is not None:
            bound, against = seconds > executed, f"executions {duration(executed)}"
        elif lock is not None:
            bound = lock < limits.IDLE_LOCK_SHARE * seconds
            against = f"the host waited {duration(lock)} for the device"
        else:
            continue
        if bound:
            yield finding(
                "XLA602",
                f"tracing {plural(tracing.total_samples or 0, 'operation')} took "
                f"{duration(seconds)}, while {against}: the device starves",
                LESS_TRACING,
                count=tracing.total_samples,
                seconds=seconds,
                by="report",
            )
            return
