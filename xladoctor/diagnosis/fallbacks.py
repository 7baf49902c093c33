"""XLA501 cpu-fallback-operation: operations that torch_xla runs on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis.fallback_advice import advice
from xladoctor.diagnosis.pasted import SCALAR_READ
from xladoctor.diagnosis.words import cores_text, duration, finding, plural, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            for found, operation in _from_state(state):
                if operation not in seen:
                    seen.add(operation)
                    yield found
        yield from _from_profiler(case.pasted, seen)


def _from_run(run: RunFacts) -> Iterator[Finding]:
    groups: dict[object, list[FallbackRow]] = {}
    for row in run.fallbacks:
        groups.setdefault((run.place(row.frames), row.operation), []).append(row)
    for rows in groups.values():
        if rows[0].operation == SCALAR_READ:
            continue
        cores = {row.core for row in rows}
        count = sum(row.count for row in rows)
        steps = sum(run.steps_by_core.get(core, 0) for core in cores)
        in_steps = any(row.first is not None and row.first > 1 for row in rows)
        if steps > 1 and not in_steps:
            continue  # during set-up only: it costs once and is over
        place = run.place(rows[0].frames)
        seconds = run.per_core(row.seconds for row in rows)
        often = f" {rate(count / steps)} per step" if steps else ""
        fetched = run.per_core(row.fetched for row in rows)
        cost = ""
        if seconds is not None and fetched is not None:
            cost = (
                f"; that held each core up for {duration(seconds)}, "
                f"{duration(fetched)} of it to fetch the inputs"
            )
        elif seconds is not None:
            cost = f"; fetching its inputs held each core up for {duration(seconds)}"
        yield finding(
            "XLA501",
            f"{rows[0].operation} runs on the CPU{often} on {cores_text(cores, run.cores)}, "
            f"{plural(count, 'time')} in all{cost}",
            advice(rows[0].operation),
            at=place,
            count=count,
            seconds=seconds,
            cores=cores,
        )


def _from_state(state: State) -> Iterator[tuple[Finding, str]]:
    for operation, total in state.fallbacks.items():
        grown, steps = state.grown(operation), state.grown("MarkStep")
        if grown == 0:
            continue  # during set-up only: it no longer happens
        count = total if grown is None else grown
        steps = state.steps if grown is None else steps
        often = f", {rate(count / steps)} per step" if steps and count >= steps else ""
        yield (
            finding(
                "XLA501",
                f"{operation} ran on the CPU {plural(count, 'time')}{often}: each cuts the graph, "
                "brings its inputs to the host and sends its result back",
                advice(operation),
                count=count,
                by="report",
            ),
            operation,
        )


def _from_profiler(pasted: Pasted, seen: set[str]) -> Iterator[Finding]:
    for line in pasted.profiler:
        for operation in line.operations:
            if operation not in seen and operation != SCALAR_READ:
                seen.add(operation)
                yield finding(
                    "XLA501",
                    f"{operation} has run on the CPU (pt-xla-profiler gives no count)",
                    advice(operation),
                    by="report",
                )
