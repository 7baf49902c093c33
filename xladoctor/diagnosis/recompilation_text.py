"""XLA210 recompilation-after-warmup, from pasted text: by what came between, then by totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.debug_lines import recompiled
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding


def find(pasted: Pasted) -> Iterator[Finding]:
    """At most one; it is silent where debug output names the lines."""
    found = next((f for state in pasted.states for f in _from_state(state)), None)
    if found is not None:
        yield found
    elif not any(recompiled(pasted.debug)):
        yield from _from_profiler(pasted)


def _from_state(state: State) -> Iterator[Finding]:
    if state.too_early:
        return
    steps = state.steps
    text: str | None = None
    new, reused = state.new_graphs, state.reused_graphs
    grown, grown_steps = state.grown("UncachedCompile"), state.grown_steps
    if grown is None:
        grown = state.grown("CompileTime")
    if grown is not None and grown_steps is None:
        between = _between_reports(state, grown)
        if between is not None:
            yield between
            return
    if grown is not None and grown_steps:
        # Two reports tell more than any total: a settled program compiles nothing in between.
        if grown / grown_steps >= limits.READS_PER_STEP and grown > 1:
            text = f"{plural(grown, 'new graph')} in the last {plural(grown_steps, 'step')}"
    elif state.step is not None and state.step <= 1 and (new or 0) > limits.SETTLED_GRAPHS:
        text = (
            f"{new} graphs were compiled in the first step, where 2 to {limits.SETTLED_GRAPHS} "
            "are normal"
        )
    elif new is not None:
        text = _from_totals(state, new, reused, steps)
    if text is not None:
        yield finding(
            "XLA210",
            f"the program keeps recompiling: {text}",
            "find what changes: input shapes (last batch, variable length), Python numbers in the "
            "graph, branches on data; PT_XLA_DEBUG_LEVEL=1 names the line of each compilation",
            count=new,
            seconds=state.seconds("CompileTime"),
            by="report",
        )


def _between_reports(state: State, grown: int) -> Finding | None:
    """Two reports without steps: what was compiled between them, against what was executed."""
    runs = state.grown("ExecuteTime", "ExecuteReplicatedTime")
    if grown < 2 or (state.new_graphs or 0) == grown:  # the first had compiled nothing yet
        return None
    if runs is not None:
        before = (state.executions or 0) - runs
        if before < limits.FEWEST_SAMPLES or grown < limits.NEW_GRAPHS_SHARE * runs:
            return None
    elif (state.new_graphs or 0) >= limits.FAR_TOO_MANY_GRAPHS:
        return None  # which says more
    # A settled program compiles nothing any more; the first graphs of one that begins are warm-up.
    known = runs is not None or (state.new_graphs or 0) - grown >= limits.FEWEST_SAMPLES
    seen = "how many steps lie between them is not in this text"
    return finding(
        "XLA210",
        "the program still compiles: "
        f"{plural(grown, 'new graph')} between two of these reports"
        f" ({seen if runs is None else plural(runs, 'execution')})",
        "print the report every few steps: if it goes on, PT_XLA_DEBUG_LEVEL=1 names the line of "
        "each compilation",
        count=grown,
        by="report",
        certain=known,
    )


def _from_totals(state: State, new: int, reused: int | None, steps: int | None) -> str | None:
    executions = state.executions
    if reused is not None:
        total = new + reused
        share = new / total if total else 0.0
        nearly_all = total >= limits.FEWEST_SAMPLES and share >= limits.NEW_GRAPHS_SHARE
        many = new > limits.SETTLED_GRAPHS and share >= limits.MANY_NEW_GRAPHS_SHARE
        if nearly_all or many:
            return f"{new} new graphs against {reused} that were reused"
        return None
    if steps is not None and steps > limits.EARLY_STEPS and new / steps >= limits.NEW_GRAPHS_SHARE:
        # A counter that is not printed is 0, unless the text is cut.
        none = ", and none was reused" if state.counter("UncachedCompile") else ""
        return f"{plural(new, 'new graph')} in {plural(steps, 'step')}{none}"
    if executions is not None and executions >= limits.FEWEST_SAMPLES:
        many = new > limits.SETTLED_GRAPHS and new / executions >= limits.MANY_NEW_GRAPHS_SHARE
        if new / executions >= limits.NEW_GRAPHS_SHARE or many:
            return f"{plural(new, 'compilation')} for {plural(executions, 'execution')}"
    if executions is None and steps is None and new >= limits.FAR_TOO_MANY_GRAPHS:
        return (
            f"{plural(new, 'compilation')}, where 2 to {limits.SETTLED_GRAPHS} are normal (how "
            "often each graph was used is not in this text)"
        )
    return None


def _from_profiler(pasted: Pasted) -> Iterator[Finding]:
    lines = [
        line
        for line in pasted.profiler
        if line.kind == "too-frequent" and line.metric == "CompileTime"
    ]
    if not lines:
        return
    first, last = lines[0], lines[-1]
    if first.count is None or last.count is None or first.steps is None or not last.steps:
        return
    if first is last:
        # It counts warm-up too, of which a settled program has some graphs and not one a step.
        yield finding(
            "XLA210",
            f"the program compiles: {plural(last.count, 'compilation')} during "
            f"{plural(last.steps, 'step')}, those of warm-up included (pt-xla-profiler)",
            "find what changes: PT_XLA_DEBUG_LEVEL=1 names the line of each compilation",
            count=last.count,
            by="report",
            certain=last.count > limits.SETTLED_GRAPHS and last.count >= last.steps,
        )
        return
    if last.steps > first.steps and last.count > first.count:
        yield finding(
            "XLA210",
            f"the program still compiles: {plural(last.count - first.count, 'compilation')} "
            f"between steps {first.steps} and {last.steps} (pt-xla-profiler)",
            "find what changes: PT_XLA_DEBUG_LEVEL=1 names the line of each compilation",
            count=last.count,
            by="report",
        )
