"""XLA101 host-sync-in-step: the host reads device values while it should run ahead."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from xladoctor.amounts import size
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.frameworks import setting
from xladoctor.diagnosis.pasted import SCALAR_READ
from xladoctor.diagnosis.visits import in_a_row
from xladoctor.diagnosis.words import (
    cores_text,
    duration,
    finding,
    plural,
    rate,
)
from xladoctor.readings.places import location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import SyncRow

_SUGGESTION = (
    "keep it a tensor and read it every 10 to 30 steps, or print it from xm.add_step_closure, "
    "which runs after the step"
)

_AFTER_LOOP = (
    "add up on the device (correct += hits) and read the sum once after the loop; gather "
    "predictions in a list and bring them to the host at its end"
)

_KINDS = {
    "compiled": "compiled a graph of their own first",
    "cut": "ended the step's graph early",
    "waited": "waited for the device",
    "free": "found the value ready",
}


def find(case: Case) -> Iterator[Finding]:
    """One finding a line (recorded run) or one for the program (pasted report)."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        found = _of_states(case.pasted)
        line = told(case.pasted)
        if found is not None and line is not None:
            yield dataclasses.replace(found, locations=(line,))
        elif found is not None:
            yield found
            yield from _from_blocks(case.pasted)
        else:
            named = list(_from_blocks(case.pasted))
            yield from named or _from_profiler(case.pasted)


def told(pasted: Pasted) -> Location | None:
    """The line of what a metrics report counts: the one that debug output of the run names.

    None if that names several, or one that has few of the reads, or if operations on the CPU read
    their inputs: then the lines are told by themselves.
    """
    found = _of_states(pasted)
    if found is None or any(state.fallbacks for state in pasted.states):
        return None
    counts: collections.Counter[Location | None] = collections.Counter()
    for block in pasted.debug:
        if block.reads_value and block.kind == "execution":
            counts[location(block.frames)] += 1
    for site in pasted.unlowered:
        place = location(site.frames)
        counts[place] = max(counts[place], site.count)
    ((line, count),) = counts.items() if len(counts) == 1 else ((None, 0),)
    return line if count * 2 >= (found.count or 0) else None


def _of_states(pasted: Pasted) -> Finding | None:
    return next((f for state in pasted.states for f in _from_state(state)), None)


def _from_run(run: RunFacts) -> Iterator[Finding]:
    # Reads of a framework for one line of the user have causes of their own: a setting each.
    lines: dict[object, list[SyncRow]] = {}
    for row in run.syncs:
        cause = setting(row.frames) or run.within(row.frames)
        lines.setdefault((run.place(row.frames), cause), []).append(row)
    for rows in lines.values():
        # A read after the last step holds up no step; it counts where its line does in others.
        in_steps = sum(row.count for row in rows if row.first is not None)
        cores = {row.core for row in rows}
        count = sum(row.count for row in rows)
        steps = sum(run.steps_by_core.get(core, 0) for core in cores)
        if run.only_evaluates and in_steps <= steps:
            continue  # what an evaluation or a server is for: its results
        place = run.place(rows[0].frames)
        inside = dict.fromkeys(run.within(row.frames) for row in rows)
        few = limits.FEWEST_READS_OF_A_LINE * len(cores)
        batches = _batches(run, place, rows)
        if steps and in_steps >= few and in_steps / steps >= limits.LINE_READS_PER_STEP:
            often, suggestion = f"{rate(count / steps)} per step", _SUGGESTION
            each = in_a_row(run, rows)
            if each is not None:  # an evaluation between the epochs, as a rule
                often, suggestion = f"{rate(each)} in a row between two steps", _AFTER_LOOP
        elif count >= few and batches and count / batches >= limits.EVALUATION_READS_PER_BATCH:
            often = f"{rate(count / batches)} per batch of the evaluation loop"
            suggestion = _AFTER_LOOP
        else:
            continue
        seconds = run.per_core(row.seconds for row in rows)
        whats = " and ".join(sorted({row.what for row in rows}))
        cost = "" if seconds is None else f"; the host waited {duration(seconds)} per core"
        cost += _kinds(rows)
        yield finding(
            "XLA101",
            f"a device value is read ({whats}) {often} on "
            f"{cores_text(cores, run.cores)}, {plural(count, 'time')} in all{cost}",
            setting(rows[0].frames) or suggestion,
            at=place,
            count=count,
            seconds=seconds,
            cores=cores,
            related=[one for one in inside if one is not None],
        )


def _batches(run: RunFacts, place: Location | None, rows: list[SyncRow]) -> int:
    """Batches of the evaluation loop of the function that reads, over all cores; 0 if none."""
    if place is None or max(row.count for row in rows) < 2:
        return 0  # never twice between two steps: no loop of more than one batch
    return run.evaluation_batches.get((place.filename, place.function), 0)


def _kinds(rows: list[SyncRow]) -> str:
    """What the reads were, in words; "" if that was not recorded."""
    counts: collections.Counter[str] = collections.Counter()
    for row in rows:
        counts.update(row.kinds or {})
    parts = [f"{counts[kind]} {words}" for kind, words in _KINDS.items() if counts[kind]]
    return f" ({', '.join(parts)})" if parts else ""


def _from_state(state: State) -> Iterator[Finding]:
    if state.too_early:
        return
    scalars = _scalar_reads(state) or _scalar_reads_without_steps(state)
    if scalars is not None:
        yield scalars
        return
    reads = state.reads
    runs = state.executions or state.samples("TensorsGraphSize", "SyncTensorsGraphSize")
    if reads is None or runs is None or min(reads, runs) < limits.FEWEST_SAMPLES:
        return
    if reads / runs < limits.READS_PER_EXECUTION:
        return
    inbound = state.metric("InboundData")
    total = inbound.accumulator if inbound else None
    mean = None if total is None else total / reads
    typical = inbound.percentiles.get("50", mean) if inbound else None
    large = inbound.percentiles.get("90") if inbound else None
    seconds = state.seconds("TransferFromDeviceTime", "TransferFromServerTime")
    if typical is not None and max(typical, large or mean or 0.0) <= limits.SCALAR_BYTES:
        what, remedy = "single values", _SUGGESTION
        if mean is not None and mean > limits.SCALAR_BYTES and reads > limits.KEPT_SAMPLES:
            what = f"{size(total or 0.0)} in all, the last {limits.KEPT_SAMPLES:,} single values"
    elif total is not None:
        often = f", a tenth of them {size(large)} or more" if large is not None else ""
        what = f"{size(total)} in all{often}"
        remedy = (
            "whole tensors come back to the host: look for .cpu(), operations that fall back to "
            "the CPU (aten:: counters) and predictions that are gathered each step"
        )
    else:
        what, remedy = "of unknown size", _SUGGESTION
    waited = ""
    if what == "single values" and seconds and seconds / reads >= limits.WAITED_READ_SECONDS:
        waited = f"; a read takes {duration(seconds / reads)}, which is the wait for the graph"
    yield finding(
        "XLA101",
        f"the host read from the device {reads:,} times ({what}), {rate(reads / runs)} per "
        f"execution{waited}",
        remedy,
        count=reads,
        seconds=seconds,
        by="report",
    )


def _scalar_reads(state: State) -> Finding | None:
    """By the counter of ``item()``, the surest sign; growth within a series before totals."""
    reads, steps = state.grown("aten::_local_scalar_dense"), state.grown_steps
    if reads is None or not steps:
        reads, steps = state.scalar_reads, state.steps
    if not reads or not steps or steps < limits.EARLY_STEPS:
        return None
    if reads / steps < limits.READS_PER_STEP or reads < limits.FEWEST_SAMPLES:
        return None
    return finding(
        "XLA101",
        f"single values are read from the device {rate(reads / steps)} per step "
        f"({reads:,} reads in {plural(steps, 'step')}): item(), print or if on a tensor",
        _SUGGESTION,
        count=reads,
        seconds=state.seconds("TransferFromDeviceTime", "TransferFromServerTime"),
        by="report",
    )


def _scalar_reads_without_steps(state: State) -> Finding | None:
    """Reads in a text without steps and executions: many in set-up and many per step look alike."""
    reads = state.scalar_reads or 0
    related = (state.steps, state.step, state.executions, state.reads)
    if reads < limits.FEWEST_SAMPLES or any(value is not None for value in related):
        return None
    return finding(
        "XLA101",
        f"single values were read from the device {reads:,} times (item(), print or if on a "
        "tensor); how often per step is not in this text",
        f"give the whole text of metrics_report(); if it is in the step: {_SUGGESTION}",
        count=reads,
        by="report",
        certain=False,
    )


def _from_blocks(pasted: Pasted) -> Iterator[Finding]:
    """Lines that PT_XLA_DEBUG itself says read a value before the step's end.

    One that only happened to read, among many executions, is silent; one whose read made a graph of
    its own is not, but is information until it has happened as often as a loop would have it.
    """
    executions = sum(block.kind == "execution" for block in pasted.debug)
    read: dict[Location | None, int] = {}
    compiled: dict[Location | None, int] = {}
    for block in pasted.debug:
        if block.reads_value:
            place = location(block.frames)
            counts = {"execution": read, "compilation": compiled}.get(block.kind)
            if counts is not None:
                counts[place] = counts.get(place, 0) + 1
    for place in dict.fromkeys([*read, *compiled]):
        count, graphs = read.get(place, 0), compiled.get(place, 0)
        seldom = executions >= limits.FEWEST_SAMPLES and not graphs
        if count >= limits.FEWEST_READS_OF_A_LINE or not seldom:
            times = "once" if max(count, graphs) == 1 else plural(max(count, graphs), "time")
            made = f", and {plural(graphs, 'graph was', 'graphs were')} compiled for it"
            count = max(count, graphs)
            yield finding(
                "XLA101",
                f"a device value was read before the step's end {times}{made if graphs else ''} "
                "(PT_XLA_DEBUG)",
                _SUGGESTION,
                at=place,
                count=count,
                by="report",
                certain=count >= limits.FEWEST_READS_OF_A_LINE,
            )


def _from_profiler(pasted: Pasted) -> Iterator[Finding]:
    lines = [
        line
        for line in pasted.profiler
        if line.kind == "too-frequent" and (line.metric or "").startswith("TransferFrom")
    ]
    if not lines or lines[-1].count is None or not lines[-1].steps:
        return
    reads, steps = lines[-1].count, lines[-1].steps
    first = lines[0]
    if first.count is not None and first.steps is not None and steps > first.steps:
        # The line is cumulative and counts set-up too: what matters is how it grows.
        grown = (reads - first.count) / (steps - first.steps)
        if grown < limits.READS_PER_STEP:
            return
        text = f"{rate(grown)} per step between steps {first.steps} and {steps}"
    else:
        text = f"{reads:,} reads during {plural(steps, 'step')}, those of set-up included"
    on_cpu = any(set(line.operations) - {SCALAR_READ} for line in pasted.profiler)
    yield finding(
        "XLA101",
        f"the host reads from the device: {text} (pt-xla-profiler"
        f"{'; operations on the CPU read their inputs too' if on_cpu else ''})",
        f"fix the operations that run on the CPU first; of what is left: {_SUGGESTION}"
        if on_cpu
        else _SUGGESTION,
        count=reads,
        by="report",
    )
