"""XLA301 no-step-boundary: nothing ends the graph; XLA212 huge-graph: it ends too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import at, finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding
    from xladoctor.results import Compilation

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

    What comes new at such a line after warm-up is new for the same reason.
    """
    grew = [
        item
        for item in run.compilations
        if item.cause.kind == "graph-grew" and item.location not in run.step_ends
    ]
    if len(grew) < limits.WARMUP_EXECUTIONS:
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
            at=last.location,
            count=sum(len(item.cores) for item in grew),
            seconds=sum(known) if known else None,
            cores=[core for item in grew for core in item.cores],
        )
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
            cores=run.cores,
        )


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
