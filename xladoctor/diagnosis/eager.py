"""XLA714 where steps run in eager mode: each operation is compiled and launched by itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding, Location

_METRIC = "EagerOpExecuteTime"
#: How the linter's sentence on ``eager_mode(True)`` begins; its other XLA714 are of variables.
_SAID = "eager mode "


def find(case: Case) -> Iterator[Finding]:
    """At most one: operations of a compiled step are none of eager mode."""
    run = case.run
    each = _each_step(run) if run is not None else None
    if run is None or each is None or each[0] < limits.EAGER_OPERATIONS_PER_STEP:
        return
    yield finding(
        "XLA714",
        f"eager mode compiles and runs every operation by itself, {each[0]:,.0f} of them per step "
        f"({each[1]:,} in all)",
        "put the step into torch_xla.compile, or leave eager mode out",
        at=_place(run),
        cores=run.cores,
    )


def settled(findings: Iterable[Finding], case: Case) -> list[Finding]:
    """Findings with what the linter says of eager mode held against the run.

    It sees where eager mode begins, and not always what is compiled in it; the run sees that.
    """
    findings = list(findings)
    said = [one for one in findings if _is_said(one)]
    seen = [one for one in findings if one.code == "XLA714" and "runtime" in one.confirmed_by]
    each = _each_step(case.run) if case.run is not None else None
    if not said or each is None:
        return findings
    others = [one for one in findings if one not in said and one not in seen]
    confirmed = ("runtime", "lint")
    return others + [
        dataclasses.replace(
            said[0], message=one.message, cores=one.cores, related=one.locations,
            confirmed_by=confirmed,
        )
        for one in seen
    ]  # fmt: skip


def _is_said(one: Finding) -> bool:
    lint = one.confirmed_by == ("lint",)
    return lint and one.code == "XLA714" and one.message.startswith(_SAID)


def _each_step(run: RunFacts) -> tuple[float, int] | None:
    """Operations of eager mode in a step, and in all; None for a run that is too short to tell."""
    steps = sum(run.steps_by_core.values())
    measured = any(one.metrics for one in run.runs)
    if run.step_count < limits.STEPS_FOR_SHARES or not measured:
        return None
    counts = [
        report.metrics[_METRIC].total_samples or 0
        for one in run.runs
        for report in one.metrics
        if _METRIC in report.metrics
    ]
    return sum(counts) / steps, sum(counts)


def _place(run: RunFacts) -> Location | None:
    """Where a step of eager mode ends: there, or around it, stands what could be compiled."""
    rows = [row for row in run.launches if row.trigger == "eager" and row.first is not None]
    return run.place(rows[0].frames) if rows else None
