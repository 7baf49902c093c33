"""SARIF 2.1.0, for code scanning: the rules' pages are the help, the findings the results."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from xladoctor import __version__, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding, Location
    from xladoctor.results import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    """One SARIF log with one run."""
    results = []
    for finding in report.findings:
        place = finding.locations[0] if finding.locations else None
        made = result(finding, location(place) if place else None)
        related = [*finding.locations[1:], *finding.related]
        if related:
            made["relatedLocations"] = [
                {
                    "id": number,
                    **location(place),
                    **({"message": {"text": place.note}} if place.note else {}),
                }
                for number, place in enumerate(related)
            ]
        results.append(made)
    document = log(report.findings, results, "xladoctor/report/")
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def log(
    findings: Sequence[Finding], results: Sequence[dict[str, Any]], identity: str
) -> dict[str, Any]:
    """The log around results, one for each finding."""
    rules = {finding.code: _rule(finding) for finding in findings}
    order = {code: index for index, code in enumerate(sorted(rules))}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "xladoctor",
                        "version": __version__,
                        "informationUri": "https://github.com/xladoctor/xladoctor",
                        "rules": [rules[code] for code in sorted(rules)],
                    }
                },
                "automationDetails": {"id": identity},
                "columnKind": "unicodeCodePoints",
                "results": [{**item, "ruleIndex": order[item["ruleId"]]} for item in results],
            }
        ],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": finding.code,
        "name": finding.name,
        "shortDescription": {"text": finding.name},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
        "properties": {"problem.severity": finding.severity.value},
    }
    try:
        page = catalogue.page(finding.code)
    except XladoctorError:
        return rule
    rule |= {
        "shortDescription": {"text": page.summary},
        "help": {"text": page.summary, "markdown": page.text},
    }
    return rule | ({"helpUri": page.url} if page.url else {})


def result(finding: Finding, place: dict[str, Any] | None) -> dict[str, Any]:
    """A finding at a place."""
    text = finding.message
    if finding.suggestion:
        text += f". Instead: {finding.suggestion}"
    return {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [place] if place is not None else [],
        "partialFingerprints": {"xladoctor/v1": _fingerprint(finding)},
        "properties": {"count": finding.count, "seconds": finding.seconds},
    }


def location(place: Location) -> dict[str, Any]:
    """A place, as exactly as it is known."""
    region = {"startLine": place.row}
    if place.column is not None:
        region["startColumn"] = place.column
    if place.end_row is not None and place.end_column is not None:
        region["endLine"] = place.end_row
        region["endColumn"] = place.end_column
    path = PurePath(place.filename)
    artifact: dict[str, Any] = {"uri": quote(os.fsencode(path.as_posix()))}
    if path.is_absolute():
        artifact["uri"] = path.as_uri()
    else:
        artifact["uriBaseId"] = "%SRCROOT%"
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _fingerprint(finding: Finding) -> str:
    """The same for the same problem in the same function, whatever its line and counts."""
    place = finding.locations[0] if finding.locations else None
    parts = (finding.code, place.filename if place else "", (place.function or "") if place else "")
    return hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()[:32]
