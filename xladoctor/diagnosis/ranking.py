"""The order of findings in a report: the one place that decides which comes first.

What went wrong comes before what is slow, what this run showed before what only the code says, the
most costly first; a cause stands above what it causes (``rules/tables/causes.toml``); what this run
did not come to is last.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from xladoctor import catalogue
from xladoctor.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Finding

#: What a finding costs, in any unit that all findings of a report share; None when not known.
Cost = "Callable[[Finding], float | None]"


def seconds(finding: Finding) -> float | None:
    """What a finding has cost in this run."""
    return finding.seconds


def ranked(
    findings: Iterable[Finding],
    cost: Callable[[Finding], float | None] = seconds,
    *,
    checked: bool = False,
) -> list[Finding]:
    """Findings in the order in which a reader should take them.

    Args:
        findings: All of a report.
        cost: What each costs; measured seconds unless something better is known (what it costs on
            a target device).
        checked: Whether the run would have shown what goes wrong between cores (simulated cores
            do). Then an error that only the code speaks of comes after what was measured.
    """

    def key(finding: Finding) -> tuple[object, ...]:
        read_only = finding.confirmed_by == ("lint",)
        return (
            finding.ran is False,
            finding.severity is Severity.INFO,
            checked and read_only,
            finding.severity.rank,
            read_only,
            -(cost(finding) or 0.0),
            -(finding.count or 0),
            finding.code,
            finding.place,
            finding.message,
        )

    return _causes_first(sorted(findings, key=key))


def cause_of(symptom: Finding, findings: Sequence[Finding]) -> Finding | None:
    """The first of some findings that brings a finding about; None if none is known to."""
    return next((one for one in findings if _causes(one, symptom)), None)


def _causes_first(findings: list[Finding]) -> list[Finding]:
    """The same order, but each cause directly above the first finding that it brings about."""
    ordered: list[Finding] = []
    for finding in findings:
        if any(finding is one for one in ordered):
            continue
        ordered += [
            one
            for one in findings
            if _causes(one, finding) and not any(one is other for other in ordered)
        ]
        ordered.append(finding)
    return ordered


def _causes(cause: Finding, symptom: Finding) -> bool:
    """Whether the one brings the other about, as far as codes and places tell."""
    if cause is symptom or cause.ran is False or "runtime" not in symptom.confirmed_by:
        return False
    return any(
        cause.code.startswith(row.codes)
        and symptom.code in row.symptoms
        and (row.anywhere or cause.place[:3] == symptom.place[:3])
        for row in _table()
    )


class _Row(NamedTuple):
    codes: tuple[str, ...]
    symptoms: tuple[str, ...]
    anywhere: bool


@functools.cache
def _table() -> tuple[_Row, ...]:
    return tuple(
        _Row(tuple(row["codes"]), tuple(row["symptoms"]), row["where"] == "anywhere")
        for row in catalogue.table("causes")["cause"]
    )
