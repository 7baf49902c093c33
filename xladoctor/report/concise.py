"""One line a finding and one line with the verdict, for logs and greps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.report import words

if TYPE_CHECKING:
    from xladoctor.findings import Finding
    from xladoctor.results import Report


def render(report: Report) -> str:
    """``train.py:52: XLA101 [960x, 3.1 s] message`` for each finding, then the verdict."""
    lines = [_line(finding) for finding in report.findings]
    lines.append(f"verdict: {report.summary.verdict}")
    return "\n".join(lines) + "\n"


def _line(finding: Finding) -> str:
    place = "-"
    if finding.locations:
        place = finding.locations[0].at
    costs = []
    if finding.count is not None:
        costs.append(f"{finding.count}x")
    if finding.seconds is not None:
        costs.append(f"{finding.seconds:.1f} s")
    if finding.ran is False:
        costs.append("not seen in this run")
    cost = f" [{', '.join(costs)}]" if costs else ""
    others = words.related(finding)
    see = f" (see {', '.join(others)})" if others else ""
    return f"{place}: {finding.code}{cost} {finding.message}{see}"
