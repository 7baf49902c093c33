"""XLA215 graph-captured-again: torch.compile keeps recapturing the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding


def find(case: Case) -> Iterator[Finding]:
    """At most one: by growth within a series, else by a number that no program needs."""
    for state in case.states:
        captured = state.samples("DynamoExtractCompiledGraph")
        if captured is None:
            captured = state.counter("DynamoExtractCompiledGraph")
        if captured is None:
            continue
        grown, steps = state.grown("DynamoExtractCompiledGraph"), state.grown_steps
        if grown is not None and grown > 1:
            during = (
                f" in the last {plural(steps, 'step')}" if steps else " since an earlier report"
            )
            text = f"{plural(grown, 'graph')} captured{during}"
        elif grown is None and captured > limits.CAPTURED_GRAPHS:
            text = f"{plural(captured, 'graph')} captured"
        else:
            continue
        yield finding(
            "XLA215",
            f"torch.compile keeps recapturing graphs: {text}",
            "TORCH_LOGS=recompiles names the guard that fails: keep shapes fixed and Python values "
            "out of what is compiled, or mark_dynamic what has to vary",
            count=captured if grown is None else grown,
            by=state.by,
        )
        return
