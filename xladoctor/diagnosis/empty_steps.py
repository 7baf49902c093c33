"""XLA310 step-end-without-work: more step ends than graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding


def find(case: Case) -> Iterator[Finding]:
    """At most one, from pasted reports: a recorded run counts optimizer steps itself."""
    for state in case.pasted.states if case.pasted is not None else ():
        ran, steps = state.executions, state.steps
        if ran is None or steps is None or steps < limits.STEADY_STEPS or not state.reused_graphs:
            continue
        if ran / steps < limits.EMPTY_STEP_ENDS:
            yield finding(
                "XLA310",
                f"{plural(steps, 'step end')} and only {plural(ran, 'execution')}: most step ends "
                "find nothing to run, so counts per step are too low here",
                "end a step once: MpDeviceLoader and xm.optimizer_step(barrier=True) already do",
                count=steps - ran,
                by=state.by,
            )
            return
