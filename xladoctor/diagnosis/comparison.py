"""Two reports side by side: what got better, what got worse, which findings came and went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.changes import CodeChange, Comparison, Counted, Figures, Gate
from xladoctor.diagnosis import gain
from xladoctor.diagnosis.on_tpu import COMPILER_ONLY
from xladoctor.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.findings import Finding
    from xladoctor.results import Report

#: Parts of the time, as :class:`~xladoctor.results.TimeParts` names them.
_PARTS = ("execute", "compile", "host_sync", "fallback", "input_wait", "trace", "other")


def compare(before: Report, after: Report) -> Comparison:
    """Hold one report against another.

    Findings are joined by code, not by line: lines move when a program is fixed, and the two
    may be different files.
    """
    old, new = gain.figures(before), gain.figures(after)
    notes = _notes(old, new, simulated=before.simulated or after.simulated)
    found = [before.findings, after.findings]
    if (before.tpu is None) != (after.tpu is None):
        found = [_without_compiler(findings) for findings in found]
        which = "first" if before.tpu is None else "second"
        notes.append(
            f"What the {which} would cost on a TPU is not known: findings of the TPU compiler are "
            "left out."
        )
    return Comparison(
        before,
        after,
        gain.changes(old, new),
        {part: (_per_step(before, part), _per_step(after, part)) for part in _PARTS},
        tuple(_codes(*found)),
        tuple(notes),
    )


def _without_compiler(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that a run shows by itself."""
    return tuple(
        found
        for found in findings
        if found.code not in COMPILER_ONLY and (found.tpu_seconds is None or found.seconds)
    )


def judge(comparison: Comparison, percent: float) -> Gate:
    """Whether something is worse by more than so many percent.

    A new finding of severity *error* (a crash, a hang, cores that train different models) is worse
    whatever the figures say. What was measured before and is not after cannot be judged. Seconds of
    simulated cores are not judged at all: they are the machine's, and depend on what else it does.
    """
    simulated = comparison.before.simulated or comparison.after.simulated
    judged = [change for change in comparison.changes if not (simulated and change.unit == "s")]
    broken = [
        f"{change.title}: {change.written(change.after)} instead of "
        + change.written(change.before)
        + ("" if change.percent is None else f" ({change.percent:+.0f}%)")
        for change in judged
        if change.verdict == "worse" and (change.percent is None or change.percent > percent)
    ]
    broken += [
        f"{item.code} {item.name} is new"
        for item in comparison.codes
        if item.verdict == "new" and item.severity is Severity.ERROR
    ]
    unknown = [
        f"{change.title} could not be measured in the second"
        for change in judged
        if change.before is not None and change.after is None
    ]
    if all(change.verdict == "unknown" for change in judged) and not unknown:
        unknown.append("the two have no figure in common")
    return Gate(tuple(broken), tuple(unknown))


def _per_step(report: Report, part: str) -> float | None:
    seconds: float | None = getattr(report.summary.seconds, part)
    if seconds is None or not report.summary.steps or report.summary.seconds.total is None:
        return None
    return seconds / report.summary.steps


def _codes(before: Iterable[Finding], after: Iterable[Finding]) -> list[CodeChange]:
    old, new = _by_code(before), _by_code(after)
    found = []
    for code in sorted({*old, *new}):
        items = [*new.get(code, ()), *old.get(code, ())]
        verdict = "new" if code not in old else "gone" if code not in new else "still"
        found.append(
            CodeChange(
                code,
                items[0].name,
                min((item.severity for item in items), key=lambda severity: severity.rank),
                verdict,
                _counted(old.get(code, [])),
                _counted(new.get(code, [])),
            )
        )
    order = ("new", "gone", "still")
    return sorted(found, key=lambda item: (order.index(item.verdict), item.severity.rank))


def _by_code(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    out: dict[str, list[Finding]] = {}
    for finding in findings:
        out.setdefault(finding.code, []).append(finding)
    return out


def _counted(findings: list[Finding]) -> Counted:
    counts = [item.count for item in findings if item.count is not None]
    seconds = [item.seconds for item in findings if item.seconds is not None]
    return Counted(
        len(findings), sum(counts) if counts else None, sum(seconds) if seconds else None
    )


def _notes(old: Figures, new: Figures, *, simulated: bool) -> list[str]:
    notes = []
    if old.cores is not None and new.cores is not None and old.cores != new.cores:
        notes.append(
            f"The first has {old.cores} cores and the second {new.cores}: "
            "compilations and times are not those of one program."
        )
    if old.steps and new.steps and old.steps != new.steps:
        notes.append(
            f"The first took {old.steps} steps and the second {new.steps}: syncs and fallbacks are "
            "compared per step, compilations as they are."
        )
    if not old.per_step and not new.per_step:
        notes.append("Neither has steps: counts are of the whole, however long each one was.")
    if old.per_step != new.per_step:
        notes.append("Only one of the two has steps, so syncs and fallbacks cannot be compared.")
    if simulated:
        notes.append(
            "Seconds of simulated cores are those of this machine: they are shown, and never break "
            "the gate."
        )
    return notes
