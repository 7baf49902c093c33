"""XLA501 cpu-fallback-operation: operations that torch_xla runs on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import device_logs
from xladoctor.diagnosis.device_words import TORCH_XLA
from xladoctor.diagnosis.fallback_advice import advice
from xladoctor.diagnosis.pasted import SCALAR_READ
from xladoctor.diagnosis.visits import in_a_row
from xladoctor.diagnosis.words import cores_text, duration, finding, plural, rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.pasted import Pasted, State
    from xladoctor.findings import Finding
    from xladoctor.readings.tables import FallbackRow


def find(case: Case) -> Iterator[Finding]:
    """One finding an operation and line (recorded run) or an operation (pasted report)."""
    if case.run is not None:
        yield from _from_run(case.run)
    if case.pasted is not None:
        seen: set[str] = set()
        for state in case.pasted.states:
            yield from _from_state(state, seen)
        yield from _from_profiler(case.pasted, seen)


def _from_run(run: RunFacts) -> Iterator[Finding]:
    groups: dict[object, list[FallbackRow]] = {}
    for row in run.fallbacks:
        at = (run.place(row.frames), run.within(row.frames))
        groups.setdefault((at, row.operation), []).append(row)
    for rows in groups.values():
        if rows[0].operation == SCALAR_READ:
            continue
        cores = {row.core for row in rows}
        count = sum(row.count for row in rows)
        steps = sum(run.steps_by_core.get(core, 0) for core in cores)
        in_steps = any(row.first is not None and row.first > 1 for row in rows)
        if steps > 1 and not in_steps:
            continue  # during set-up only: it costs once and is over
        place, inside = run.place(rows[0].frames), run.within(rows[0].frames)
        seconds = run.per_core(row.seconds for row in rows)
        often = _often(run, rows, steps)
        fetched = run.per_core(row.fetched for row in rows)
        cost = ""
        if seconds is not None and fetched is not None:
            cost = (
                f"; that blocked each core for {duration(seconds)}, "
                f"{duration(fetched)} of it to fetch the inputs"
            )
        elif seconds is not None:
            cost = f"; fetching its inputs blocked each core for {duration(seconds)}"
        yield finding(
            "XLA501",
            f"{rows[0].operation} runs on the CPU{often} on {cores_text(cores, run.cores)}, "
            f"{plural(count, 'time')} in all{cost}",
            advice(rows[0].operation) if run.member == TORCH_XLA else device_logs.ELSEWHERE,
            at=place,
            count=count,
            seconds=seconds,
            cores=cores,
            related=[] if inside is None else [inside],
        )


def _often(run: RunFacts, rows: Sequence[FallbackRow], steps: int) -> str:
    each = in_a_row(run, rows)
    if each is not None:  # an evaluation between the epochs, as a rule
        return f" {rate(each)} in a row between two steps"
    inside = sum(row.count for row in rows if row.first is not None)
    return f" {rate(inside / steps)} per step" if steps and inside else ""


def _from_state(state: State, seen: set[str]) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for operation, total in state.fallbacks.items():
        grown = state.grown(operation)
        if grown == 0 or operation in seen:
            continue  # during set-up only: it no longer happens; or another core's report has it
        counts[operation] = total if grown is None else grown
    seen.update(counts)
    steps = state.steps if state.before is None else state.grown_steps
    cost = ": each cuts the graph, brings its inputs to the host and sends its result back"
    for operations in _together(counts):
        count = sum(counts[operation] for operation in operations)
        often = f", {rate(count / steps)} per step" if steps and count >= steps else ""
        yield finding(
            "XLA501",
            f"{_named(operations)} ran on the CPU {plural(count, 'time')}{often}{cost}",
            advice(operations[0]),
            count=count,
            by="report",
        )
        cost = ""  # said once


def _from_profiler(pasted: Pasted, seen: set[str]) -> Iterator[Finding]:
    named = [operation for line in pasted.profiler for operation in line.operations]
    new = [name for name in dict.fromkeys(named) if name not in seen and name != SCALAR_READ]
    for operations in _together(new):
        have = "has" if len(operations) == 1 else "have"
        yield finding(
            "XLA501",
            f"{_named(operations)} {have} run on the CPU (pt-xla-profiler gives no count)",
            advice(operations[0]),
            by="report",
        )


def _together(operations: Iterable[str]) -> Iterator[list[str]]:
    """Operations, those that are passes of one (forward, backward) together if one advice helps."""
    groups: dict[tuple[str, str], list[str]] = {}
    for operation in operations:
        name = operation.partition(".")[0].removesuffix("_backward").removesuffix("_forward")
        groups.setdefault((name, advice(operation)), []).append(operation)
    yield from groups.values()


def _named(operations: Sequence[str]) -> str:
    """``aten::prelu``, or ``aten::_ctc_loss and aten::_ctc_loss_backward``."""
    return " and ".join(sorted(operations))
