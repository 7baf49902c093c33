"""XLA301 no-step-boundary: nothing ends the graph; XLA212 huge-graph: it ends too late."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import at, finding, noted, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import Held
    from xladoctor.results import Compilation

#: What ended a graph that held many steps, by trigger.
_ENDED = {
    "read": "a read of a value ended it",
    "fallback": "an operation on the CPU ended it",
    "library": "a library ended it",
    "end": "the program was over",
}
_SUGGESTION = "end each step with torch_xla.sync() (or iterate over an MpDeviceLoader, which does)"


def find(case: Case) -> Iterator[Finding]:
    """At most one of the two."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        for state in case.pasted.states:
            found = next(_from_state(state), None)
            if found is not None:
                yield found
                return


def told(run: RunFacts) -> set[int]:
    """The compilations (by ``id``) whose time the finding of this module counts."""
    return {id(item) for item in _growing(run)}


def _growing(run: RunFacts) -> list[Compilation]:
    """Graphs of lines whose graphs grow where no step ends, if that is a habit; else none.

    It is one within a process: where each of several launches has a graph that grows once, as that
    of DDP does when it divides its first bucket, nothing is left over from step to step.
    What comes new at such a line after warm-up is new for the same reason.
    """
    found = [
        (item, {row.process for row in rows})
        for item, rows in run.new_graphs
        if item.cause.kind == "graph-grew" and item.location not in run.step_ends
    ]
    grew = [item for item, _ in found]
    in_each = collections.Counter(process for _, processes in found for process in processes)
    if max(in_each.values(), default=0) < limits.WARMUP_EXECUTIONS:
        return []
    lines = {item.location for item in grew}
    return [
        item
        for item in run.compilations
        if item in grew or (item.location in lines and item.after_warmup)
    ]


def _from_run(run: RunFacts) -> Iterator[Finding]:
    grew = _growing(run)
    if grew:
        last = next(item for item in reversed(grew) if item.cause.kind == "graph-grew")
        detail = f" ({last.cause.detail})" if last.cause.detail else ""
        known = [item.seconds for item in grew if item.seconds is not None]
        yield finding(
            "XLA301",
            "no step boundary: nothing ends the graph where a step ends, so the graph that ends at "
            f"{at(last.location)} holds the steps before it too; it grew "
            f"{plural(len(grew), 'time')}{detail}",
            _SUGGESTION,
            at=_steps_at(run) or last.location,
            related=[noted(last.location, "the graph ends here")] if last.location else [],
            count=sum(len(item.cores) for item in grew),
            seconds=sum(known) if known else None,
            cores=[core for item in grew for core in item.cores],
        )
        return
    held = _held(run)
    if held is not None:
        yield held
        return
    # Eager mode and dynamo run graphs that no line of the program ends; torch_xla counts them.
    executed = any(
        name in report.metrics
        for one in run.runs
        for report in one.metrics
        for name in ("ExecuteTime", "ExecuteReplicatedTime", "EagerOpExecuteTime")
    )
    ended = executed + len(run.launches) + len(run.compilation_rows) + run.sync_count
    if run.step_count >= limits.STEPS_FOR_SHARES and run.launches_recorded and ended == 0:
        yield finding(
            "XLA301",
            f"no step boundary: {plural(run.step_count, run.step_word)} were traced and nothing "
            "has been executed",
            _SUGGESTION,
            at=_steps_at(run),
            cores=run.cores,
        )


def _held(run: RunFacts) -> Finding | None:
    """Dozens of optimizer steps in one graph, which makes it a single large compilation."""
    rows = [row for row in run.steps if row.held is not None and _too_many(row.held)]
    if not rows:
        return None
    most = max((row.held for row in rows if row.held is not None), key=lambda held: held.steps)
    stretches = {(row.core, row.first, row.last) for row in rows}
    lines = {
        run.place(launch.frames)
        for launch in run.launches
        if launch.trigger == most.trigger and (launch.core, launch.first, launch.last) in stretches
    }
    ends = [item for item in run.compilations if item.location in lines]
    seconds = [item.seconds for item in ends if item.seconds is not None]
    how = _ENDED.get(most.trigger, "the program ended it")
    place = run.place(most.frames)
    return finding(
        "XLA301",
        f"no step boundary: {most.steps} steps of the optimizer went into one graph before {how}; "
        "tracing, compilation and memory grow with each of them",
        _SUGGESTION,
        at=place,
        seconds=sum(seconds) if seconds else None,
        cores=[row.core for row in rows],
        related=[noted(line, "the graph ends here") for line in lines if line is not None],
    )


def _too_many(held: Held) -> bool:
    at_will = held.trigger in ("step", "sync", "loader")
    return held.steps >= (limits.STEPS_IN_A_GRAPH_AT_WILL if at_will else limits.STEPS_IN_A_GRAPH)


def _steps_at(run: RunFacts) -> Location | None:
    """Where the optimizer steps again and again in one graph; None if it does not."""
    held = [row.held for row in run.steps if row.held is not None]
    most = max(held, key=lambda one: one.steps, default=None)
    return None if most is None else run.place(most.frames)


def _from_state(state: State) -> Iterator[Finding]:
    created, gone = state.counter("CreateXlaTensor"), state.counter("DestroyXlaTensor")
    alive = created - (gone or 0) if created is not None else 0
    nothing_ran = (
        state.executions is None
        and state.new_graphs is None
        and state.reused_graphs is None
        and state.counter("ExecuteComputation") is None
    )
    if not state.steps and nothing_ran and alive >= limits.UNCUT_TENSORS:
        yield finding(
            "XLA301",
            f"no step boundary: {alive:,} tensors wait to be computed, nothing has been compiled "
            "or executed, and MarkStep was never called",
            _SUGGESTION,
            by="report",
        )
        return
    graph = state.metric("TensorsGraphSize", "SyncTensorsGraphSize")
    typical = graph.percentiles.get("50") if graph else None
    if typical is not None and typical > limits.HUGE_GRAPH_NODES:
        yield finding(
            "XLA212",
            f"the typical graph has {typical:,.0f} nodes, where a step of a large model has a few "
            "thousand: compiling it takes minutes",
            "use torch_xla.experimental.scan for loops over layers or time steps, or end the graph "
            "inside the loop",
            count=graph.total_samples if graph else None,
            by="report",
        )
