"""The linter's findings as SARIF 2.1.0: with why each is believed, and what to write instead."""

from __future__ import annotations

import collections
import hashlib
import json
from typing import TYPE_CHECKING, Any

from xladoctor.findings import stable
from xladoctor.report import sarif

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding, Fix, Location


def render(findings: Sequence[Finding]) -> str:
    """One SARIF log with one run."""
    seen: collections.Counter[str] = collections.Counter()
    results = []
    for finding in findings:
        result = sarif.result(finding, _location(finding.locations[0]))
        key = f"{finding.code}\0{finding.locations[0].filename}\0{stable(finding.message)}"
        seen[key] += 1
        digest = hashlib.sha256(
            f"{key}\0{seen[key]}".encode(errors="backslashreplace")
        ).hexdigest()[:32]
        # The same for the same problem wherever its line moves, another for its next occurrence.
        result["partialFingerprints"] = {"xladoctor/v1": digest}
        if finding.related:
            result["relatedLocations"] = [
                {"id": number, **_location(place), "message": {"text": place.note or "see also"}}
                for number, place in enumerate(finding.related)
            ]
        if finding.fix is not None and finding.locations[0].cell is None:
            result["fixes"] = [_fix(finding.fix, finding.locations[0])]
        results.append(result)
    log = sarif.log(findings, results, "xladoctor/lint/")
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _location(place: Location) -> dict[str, Any]:
    found = sarif.location(place)
    if place.cell is not None:
        # A notebook's file is JSON: lines inside a cell are no lines of it.
        found["physicalLocation"]["region"] = {"startLine": 1}
        name = f"cell {place.cell + 1}, line {place.row}"
        found["logicalLocations"] = [{"name": name, "kind": "module"}]
    return found


def _fix(fix: Fix, place: Location) -> dict[str, Any]:
    artifact = sarif.location(place)["physicalLocation"]["artifactLocation"]
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.start.row,
                "startColumn": edit.start.column,
                "endLine": edit.end.row,
                "endColumn": edit.end.column,
            },
            "insertedContent": {"text": edit.content},
        }
        for edit in fix.edits
    ]
    return {
        "description": {"text": fix.message},
        "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
    }
