"""The linter's findings as a Code Quality report, which GitLab shows in merge requests."""

from __future__ import annotations

import collections
import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING

from xladoctor.findings import Severity, stable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding

_LEVELS = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "minor"}


def render(findings: Sequence[Finding]) -> str:
    """One array; a finding keeps its fingerprint when its line moves."""
    seen: collections.Counter[str] = collections.Counter()
    found = []
    for finding in findings:
        place = finding.locations[0]
        path = PurePath(place.filename).as_posix()
        key = f"{finding.code}\0{path}\0{stable(finding.message)}"
        seen[key] += 1
        begin = 1 if place.cell is not None else place.row
        end = begin if place.cell is not None else place.end_row or begin
        cell = f" (cell {place.cell + 1}, line {place.row})" if place.cell is not None else ""
        help_text = f". Instead: {finding.suggestion}" if finding.suggestion else ""
        found.append(
            {
                "type": "issue",
                "check_name": finding.code,
                "description": f"{finding.code}: {finding.message}{help_text}{cell}",
                "categories": ["Performance"],
                "severity": _LEVELS[finding.severity],
                "fingerprint": hashlib.sha256(
                    f"{key}\0{seen[key]}".encode(errors="backslashreplace")
                ).hexdigest()[:32],
                "location": {"path": path, "lines": {"begin": begin, "end": end}},
            }
        )
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
