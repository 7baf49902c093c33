"""XLA213 step-in-several-graphs: each step is run in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, plural, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding

_SUGGESTION = (
    "look for what ends the graph inside the step: reads of device values, operations that run on "
    "the CPU, more than one torch_xla.sync(); PT_XLA_DEBUG_LEVEL=2 names the line of each execution"
)


def find(case: Case) -> Iterator[Finding]:
    """At most one, from pasted reports: a recorded run has a finding for each line that cuts."""
    for state in case.pasted.states if case.pasted is not None else ():
        found = _pending_inputs(state) or _per_step(state) or _uneven_compilations(state)
        if found is not None:
            yield found
            return


def _per_step(state: State) -> Finding | None:
    ran, steps = state.grown("ExecuteTime", "ExecuteReplicatedTime"), state.grown_steps
    if ran is None or not steps:
        ran, steps = state.executions, state.steps
    if ran is None or steps is None or steps < limits.STEADY_STEPS:
        return None
    if ran / steps <= limits.GRAPHS_PER_STEP:
        return None
    return finding(
        "XLA213",
        f"{rate(ran / steps)} per step a graph is executed ({ran:,} executions in "
        f"{plural(steps, 'step')}): the step is run in pieces",
        _SUGGESTION,
        count=ran,
        by=state.by,
    )


def _pending_inputs(state: State) -> Finding | None:
    """Dynamo: what the compiled function is given is not computed yet."""
    pending = state.counter("DynamoSyncInputExecuteTime")
    calls = state.samples("RunCachedGraphOutputData", "RunCachedGraphInputData")
    if pending is None or not calls or calls < limits.FEWEST_SAMPLES:
        return None
    if pending / calls < limits.PENDING_INPUTS_PER_CALL:
        return None
    return finding(
        "XLA213",
        f"{rate(pending / calls)} per call of the compiled function its inputs had to be computed "
        f"first ({pending:,} times): a graph of their own each time",
        "call torch_xla.sync() before the compiled function, or bring what prepares its inputs "
        "into it",
        count=pending,
        by=state.by,
    )


def _uneven_compilations(state: State) -> Finding | None:
    compile_time = state.metric("CompileTime")
    if compile_time is None or (compile_time.total_samples or 0) < limits.FEWEST_SAMPLES:
        return None
    typical, large = (compile_time.percentiles.get(head) for head in ("50", "99"))
    if typical is None or large is None or state.too_early:
        return None
    if typical > limits.TINY_COMPILATION_SECONDS or large < limits.BIG_COMPILATION_SECONDS:
        return None
    return finding(
        "XLA213",
        f"half of the {compile_time.total_samples:,} compilations took {duration(typical)} or less "
        f"and the longest {duration(large)}: the program is cut into many small graphs and a few "
        "large ones",
        _SUGGESTION,
        count=compile_time.total_samples,
        by=state.by,
    )
