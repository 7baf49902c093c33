"""The linter's findings as a Code Quality report, which GitLab shows in merge requests."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING

from xladoctor.findings import Severity
from xladoctor.report import fingerprints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding

_LEVELS = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "minor"}


def render(findings: Sequence[Finding]) -> str:
    """One array; a finding keeps its fingerprint when its line moves."""
    found = []
    for finding, fingerprint in zip(findings, fingerprints.of(findings), strict=True):
        place = finding.locations[0]
        path = PurePath(place.filename).as_posix()
        begin = 1 if place.cell is not None else place.row
        end = begin if place.cell is not None else place.end_row or begin
        cell = f" ({place.inside})" if place.cell is not None else ""
        help_text = f". Instead: {finding.suggestion}" if finding.suggestion else ""
        found.append(
            {
                "type": "issue",
                "check_name": finding.code,
                "description": f"{finding.code}: {finding.message}{help_text}{cell}",
                "categories": ["Performance"],
                "severity": _LEVELS[finding.severity],
                "fingerprint": fingerprint,
                "location": {"path": path, "lines": {"begin": begin, "end": end}},
            }
        )
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
