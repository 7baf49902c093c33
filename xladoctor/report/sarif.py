"""SARIF 2.1.0, for code scanning: the rules' pages are the help, the findings the results.

One emitter for the linter's findings and those of runs: each with its places, why it is believed
and, where that is known exactly, its fix.
"""

from __future__ import annotations

import json
import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from xladoctor import __version__, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import Severity
from xladoctor.report import fingerprints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding, Fix, Location
    from xladoctor.results import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    """One SARIF log with one run: the findings of a profile or a report."""
    return of(report.findings, "xladoctor/report/")


def of(findings: Sequence[Finding], identity: str) -> str:
    """One SARIF log with one run.

    Args:
        findings: Its results.
        identity: What kind of run it is, so that one does not take the place of the other.
    """
    rules = {finding.code: _rule(finding) for finding in findings}
    order = {code: index for index, code in enumerate(sorted(rules))}
    document = {
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
                "results": [
                    {**_result(finding, fingerprint), "ruleIndex": order[finding.code]}
                    for finding, fingerprint in zip(
                        findings, fingerprints.of(findings), strict=True
                    )
                ],
            }
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


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
        "help": {"text": page.summary, "markdown": page.body},
    }
    return rule | ({"helpUri": page.url} if page.url else {})


def _result(finding: Finding, fingerprint: str) -> dict[str, Any]:
    text = finding.message
    if finding.suggestion:
        text += f". Instead: {finding.suggestion}"
    first = finding.locations[0] if finding.locations else None
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [_location(first)] if first is not None else [],
        "partialFingerprints": {"xladoctor/v1": fingerprint},
        "properties": {"count": finding.count, "seconds": finding.seconds},
    }
    related = [*finding.locations[1:], *finding.related]
    if related:
        result["relatedLocations"] = [
            {"id": number, **_location(place), "message": {"text": place.note or "see also"}}
            for number, place in enumerate(related)
        ]
    if finding.fix is not None and first is not None and first.cell is None:
        result["fixes"] = [_fix(finding.fix, first)]
    return result


def _location(place: Location) -> dict[str, Any]:
    """A place, as exactly as it is known."""
    region = {"startLine": place.row}
    if place.column is not None:
        region["startColumn"] = place.column
    if place.end_row is not None and place.end_column is not None:
        region["endLine"] = place.end_row
        region["endColumn"] = place.end_column
    if place.cell is None:
        return {"physicalLocation": {"artifactLocation": _artifact(place), "region": region}}
    return {
        # A notebook's file is JSON: lines inside a cell are no lines of it.
        "physicalLocation": {"artifactLocation": _artifact(place), "region": {"startLine": 1}},
        "logicalLocations": [{"name": place.inside, "kind": "module"}],
    }


def _artifact(place: Location) -> dict[str, Any]:
    path = PurePath(place.filename)
    if path.is_absolute():
        return {"uri": path.as_uri()}
    return {"uri": quote(os.fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}


def _fix(fix: Fix, place: Location) -> dict[str, Any]:
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
        "artifactChanges": [{"artifactLocation": _artifact(place), "replacements": replacements}],
    }
