"""SARIF 2.1.0, for code scanning: the rules' pages are the help, the findings the results."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from xladoctor import __version__, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import Severity

if TYPE_CHECKING:
    from xladoctor.findings import Finding, Location
    from xladoctor.results import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    """One SARIF log with one run."""
    rules = {finding.code: _rule(finding) for finding in report.findings}
    order = {code: index for index, code in enumerate(sorted(rules))}
    log = {
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
                "automationDetails": {"id": "xladoctor/report/"},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, order[finding.code]) for finding in report.findings],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


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
    return rule | {
        "shortDescription": {"text": page.summary},
        "help": {"text": page.summary, "markdown": page.text},
        "helpUri": page.url,
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    text = finding.message
    if finding.suggestion:
        text += f". Instead: {finding.suggestion}"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(place) for place in finding.locations[:1]],
        "partialFingerprints": {"xladoctor/v1": _fingerprint(finding)},
        "properties": {"count": finding.count, "seconds": finding.seconds},
    }
    related = [*finding.locations[1:], *finding.related]
    if related:
        result["relatedLocations"] = [
            {"id": number, **_location(place)} for number, place in enumerate(related)
        ]
    return result


def _location(place: Location) -> dict[str, Any]:
    region = {"startLine": place.row}
    if place.column is not None:
        region["startColumn"] = place.column
    path = PurePath(place.filename)
    artifact: dict[str, Any] = {"uri": quote(path.as_posix())}
    if path.is_absolute():
        artifact["uri"] = path.as_uri()
    else:
        artifact["uriBaseId"] = "%SRCROOT%"
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _fingerprint(finding: Finding) -> str:
    """The same for the same problem in the same function, whatever its line and counts."""
    place = finding.locations[0] if finding.locations else None
    parts = (finding.code, place.filename if place else "", (place.function or "") if place else "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
