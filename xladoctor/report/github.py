"""Annotations of GitHub Actions: one workflow command a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.findings import Severity
from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.findings import Finding, Location
    from xladoctor.results import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report) -> str:
    """``::warning title=...,file=...,line=...::message`` for each finding, then the verdict."""
    verdict = f"::notice title=xladoctor::{_data(report.summary.verdict)}\n"
    return of(report.findings) + verdict


def of(findings: Iterable[Finding]) -> str:
    """One ``::error ...::`` line per finding."""
    return "".join(f"{_line(finding)}\n" for finding in findings)


def _line(finding: Finding) -> str:
    properties = {"title": f"xladoctor ({finding.code})"}
    message = f"{finding.code} {finding.message}"
    if finding.suggestion:
        message += f"\nInstead: {finding.suggestion}"
    message += "".join(f"\nSee {place}" for place in words.related(finding))
    if finding.locations:
        place = finding.locations[0]
        properties |= _where(place)
        message = f"{place.exactly}: {message}"
    joined = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_LEVELS[finding.severity]} {joined}::{_data(message)}"


def _where(place: Location) -> dict[str, str]:
    if place.cell is not None:
        # A notebook's file is JSON: GitHub could only mark a wrong line of it.
        return {"file": place.filename}
    where = {"file": place.filename, "line": str(place.row)}
    if place.end_row is not None:
        where["endLine"] = str(place.end_row)
    if place.end_row == place.row and place.end_column is not None:
        where |= {"col": str(place.column), "endColumn": str(place.end_column)}
    return where


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
