"""Why two ways part: the finding that goes with it, or what the numbers themselves show."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.findings import Severity
from xladoctor.verify.records import BAD, MISSING, SAMPLES, SUMS

if TYPE_CHECKING:
    import array
    from collections.abc import Iterable, Sequence

    from xladoctor.findings import Finding
    from xladoctor.verify.records import Record
    from xladoctor.verify.result import Divergence

#: How near two gradients must be to a multiple of each other, relative to their size.
_NEAR = 1e-3


def wrong(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that make results wrong: those that the table of divergences names."""
    known = _divergence_codes() | {"XLA434", "XLA437"}
    return tuple(
        found for found in findings if found.code in known and found.severity is Severity.ERROR
    )


def shown(findings: Sequence[Finding], divergence: Divergence | None) -> tuple[Finding, ...]:
    """The findings to show beside the result.

    What only the code says and what would part the ways is refuted if they do not part; what
    explains the divergence is shown.
    """
    told = _divergence_codes()
    return tuple(
        found
        for found in findings
        if found.confirmed_by != ("lint",)
        or found.code not in told
        or (divergence is not None and divergence.why.startswith(found.code))
    )


def explained(
    divergence: Divergence, left: Record, right: Record, findings: Sequence[Finding]
) -> Divergence:
    """The divergence with its reason and the line to change, as far as they are known."""
    between = "devices" if divergence.other == "cpu" else "cores"
    rows = [
        row
        for row in catalogue.table("divergences")["divergence"]
        if row["between"] == between and divergence.what in row["what"]
    ]
    # What the run saw has happened; what only the code says may stand where the run never came,
    # unless the run saw something on that line.
    read = [found for found in findings if found.confirmed_by == ("lint",)]
    ran = [found for found in findings if found not in read]
    lines = {_line(found) for found in ran}
    happened = [found for found in findings if found in ran or _line(found) in lines]
    for witnesses in (happened, read):
        for row in rows:
            finding = next((found for found in witnesses if found.code in row["codes"]), None)
            if finding is not None:
                return dataclasses.replace(
                    divergence,
                    why=f"{finding.code} ({finding.name}): {row['why']}",
                    location=finding.locations[0] if finding.locations else divergence.location,
                )
    return dataclasses.replace(divergence, why=_by_numbers(divergence, left, right))


def _divergence_codes() -> set[str]:
    """The findings that explain a divergence."""
    return {code for row in catalogue.table("divergences")["divergence"] for code in row["codes"]}


def _line(finding: Finding) -> tuple[str, int] | None:
    place = next(iter(finding.locations), None)
    return None if place is None else (place.filename, place.row)


def _no_gradient(way: str, other: str) -> str:
    return f"no gradient arrives there in {way}: it has None where {other} has one"


def _by_numbers(divergence: Divergence, left: Record, right: Record) -> str:
    if divergence.what != "gradient" or divergence.other == divergence.way:
        return ""
    pair = _sketches(divergence, left), _sketches(divergence, right)
    if pair[0] is None or pair[1] is None:
        return ""
    if pair[1][BAD] == MISSING:
        return _no_gradient(divergence.way, divergence.other)
    if pair[0][BAD] == MISSING:
        return _no_gradient(divergence.other, divergence.way)
    cores = len(right.cores)
    factor = _factor(pair[0], pair[1])
    if factor is None or cores < 2:
        return ""
    if abs(factor - cores) < _NEAR * cores:
        return (
            f"it is {cores} times as large: the gradients of the cores are added up and not "
            "averaged, or each loss is a sum over its share"
        )
    if abs(factor * cores - 1) < _NEAR:
        return (
            f"it is 1/{cores} as large: the loss is a sum over the batch, of which each core has a "
            "share, and the cores' gradients are averaged; or they are averaged twice"
        )
    return ""


def _sketches(divergence: Divergence, record: Record) -> array.array[float] | None:
    for step in record.steps:
        names = step.names.get(divergence.what, ())
        if step.number == divergence.step and divergence.name in names:
            return step.sketches[divergence.what][names.index(divergence.name)]
    return None


def _factor(one: array.array[float], two: array.array[float]) -> float | None:
    """By how much the second is larger, if it is a multiple of the first."""
    ours = [*one[SUMS:SAMPLES], *one[SAMPLES:]]
    theirs = [*two[SUMS:SAMPLES], *two[SAMPLES:]]
    size = sum(value * value for value in ours)
    if not size:
        return None
    factor = sum(a * b for a, b in zip(ours, theirs, strict=True)) / size
    left_over = sum((b - factor * a) ** 2 for a, b in zip(ours, theirs, strict=True))
    whole = sum(value * value for value in theirs)
    return factor if left_over <= (_NEAR**2) * whole else None
