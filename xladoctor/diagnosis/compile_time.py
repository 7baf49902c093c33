"""XLA211 long-compilation: single compilations that take minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import recompilation, step_boundary
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import duration, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding

_SUGGESTION = (
    "keep compiled graphs on disk (xr.initialize_cache), and use scan for loops over layers: "
    "the graph and its compilation get smaller"
)


def find(case: Case) -> Iterator[Finding]:
    """At most one."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        found = next((f for state in case.pasted.states for f in _from_state(state)), None)
        if found is not None:
            yield found
        else:
            yield from _from_profiler(case.pasted)


def _from_run(run: RunFacts) -> Iterator[Finding]:
    long = [
        item
        for item in run.compilations
        if item.seconds is not None and item.seconds >= limits.LONG_COMPILATION_SECONDS
    ]
    total = sum(item.seconds or 0.0 for item in long)
    executed = run.time.execute
    if not long or (executed is not None and executed > limits.AMORTISED * total):
        return
    longest = max(long, key=lambda item: item.seconds or 0.0)
    # What another finding counts already must not be paid for twice.
    counted = recompilation.told(run) | step_boundary.told(run)
    own = sum(item.seconds or 0.0 for item in long if id(item) not in counted)
    yield finding(
        "XLA211",
        f"{plural(len(long), 'compilation')} took a minute or more, the longest "
        f"{duration(longest.seconds or 0.0)}",
        _SUGGESTION,
        at=longest.location,
        count=sum(len(item.cores) for item in long),
        seconds=own or None,
        cores=[core for item in long for core in item.cores],
    )


def _late(state: State) -> Iterator[Finding]:
    """A long compilation between two reports after warm-up: a graph of a rare branch."""
    grown, seconds = state.grown("CompileTime"), state.grown_seconds("CompileTime")
    steps = state.grown_steps
    if not grown or seconds is None or not steps or steps < limits.STEADY_STEPS:
        return
    if seconds / grown >= limits.LONG_COMPILATION_SECONDS:
        yield finding(
            "XLA211",
            f"{plural(grown, 'compilation')} of {duration(seconds / grown)} in the last "
            f"{plural(steps, 'step')}, long after warm-up: a graph of a rare branch (validation, "
            "the last batch, sampling)",
            "run the rare branch once before the loop and keep compiled graphs on disk "
            "(xr.initialize_cache), or give it the shapes of the training step",
            count=grown,
            seconds=seconds,
            by="report",
        )


def _from_state(state: State) -> Iterator[Finding]:
    late = next(_late(state), None)
    if late is not None:
        yield late
        return
    compile_time = state.metric("CompileTime")
    if compile_time is None:
        return
    known = list(compile_time.percentiles.values())
    if compile_time.total_samples == 1 and compile_time.accumulator is not None:
        known.append(compile_time.accumulator)
    longest = max(known, default=0.0)
    total = compile_time.accumulator
    executed = state.execute_seconds
    if longest < limits.LONG_COMPILATION_SECONDS:
        yield from _of_unknown_use(state)
        return
    if executed is not None and executed > limits.AMORTISED * (total or longest):
        return
    early = state.too_early and longest < limits.LONG_FIRST_COMPILATION_SECONDS
    against = "" if executed is None else f", all executions {duration(executed)}"
    every = "" if total is None else f"; all of them took {duration(total)}{against}"
    yield finding(
        "XLA211",
        f"the longest compilation took {duration(longest)}{every}",
        _SUGGESTION,
        count=compile_time.total_samples,
        seconds=total,
        by="report",
        certain=not early,
    )


def _of_unknown_use(state: State) -> Iterator[Finding]:
    """A minute or more of compilation in a text that does not say for how many steps."""
    compile_time = state.metric("CompileTime")
    total = compile_time.accumulator if compile_time else None
    count = compile_time.total_samples if compile_time else None
    known = (state.executions, state.reused_graphs, state.steps)
    if not total or not count or any(value is not None for value in known):
        return
    if total >= limits.LONG_COMPILATION_SECONDS:
        yield finding(
            "XLA211",
            f"{plural(count, 'compilation')} took {duration(total)}, {duration(total / count)} "
            "each on average; for how many steps is not in this text",
            _SUGGESTION,
            count=count,
            seconds=total,
            by="report",
            certain=False,
        )


def _from_profiler(pasted: Pasted) -> Iterator[Finding]:
    slow = [
        line.seconds
        for line in pasted.profiler
        if line.kind == "too-slow" and line.metric == "CompileTime" and line.seconds is not None
    ]
    if slow:
        yield finding(
            "XLA211",
            f"the longest compilation took {duration(max(slow))} (pt-xla-profiler)",
            _SUGGESTION,
            by="report",
        )
