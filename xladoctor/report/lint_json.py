"""The linter's findings as one JSON array; the form of an element is promised to users."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.findings import fix_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.findings import Finding, Location


def render(findings: Iterable[Finding]) -> str:
    """The findings, one object each."""
    return json.dumps([element(item) for item in findings], indent=2, ensure_ascii=False) + "\n"


def element(finding: Finding) -> dict[str, Any]:
    """One finding; rows and columns count from 1, columns in code points."""
    place = finding.locations[0]
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "suggestion": finding.suggestion,
        "url": catalogue.url_of(finding.code, finding.name),
        "filename": place.filename,
        "cell": place.cell,
        "location": {"row": place.row, "column": place.column},
        "end_location": {"row": place.end_row, "column": place.end_column},
        "fix": fix_to_json(finding.fix),
        "related": [_related(item) for item in finding.related],
    }


def statistics(findings: Sequence[Finding]) -> str:
    """How many findings each rule has, the most frequent first."""
    counts = collections.Counter((finding.code, finding.name) for finding in findings)
    fixable = {finding.code for finding in findings if finding.fix is not None}
    rows = [
        {"code": code, "name": name, "count": count, "fixable": code in fixable}
        for (code, name), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return json.dumps(rows, indent=2) + "\n"


def _related(place: Location) -> dict[str, Any]:
    return {
        "filename": place.filename,
        "cell": place.cell,
        "location": {"row": place.row, "column": place.column},
        "end_location": {"row": place.end_row, "column": place.end_column},
        "message": place.note or "",
    }
