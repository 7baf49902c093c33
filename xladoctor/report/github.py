"""Annotations of GitHub Actions: one workflow command a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.findings import Severity
from xladoctor.report import words

if TYPE_CHECKING:
    from xladoctor.findings import Finding
    from xladoctor.results import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report) -> str:
    """``::warning title=...,file=...,line=...::message`` for each finding, then the verdict."""
    lines = [_line(finding) for finding in report.findings]
    lines.append(f"::notice title=xladoctor::{_data(report.summary.verdict)}")
    return "\n".join(lines) + "\n"


def _line(finding: Finding) -> str:
    properties = {"title": f"xladoctor ({finding.code})"}
    message = f"{finding.code} {finding.message}"
    if finding.suggestion:
        message += f"\nInstead: {finding.suggestion}"
    message += "".join(f"\nSee {place}" for place in words.related(finding))
    if finding.locations:
        place = finding.locations[0]
        properties |= {"file": place.filename, "line": str(place.row)}
        message = f"{place.filename}:{place.row}: {message}"
    joined = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_LEVELS[finding.severity]} {joined}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
