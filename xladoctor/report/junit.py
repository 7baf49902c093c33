"""JUnit XML: a suite a file, a failed case a finding, and one passed case when there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.findings import Finding
    from xladoctor.results import Report

#: Characters that XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """One ``testsuites`` element."""
    return of(report.findings, passed=report.summary.verdict)


def of(all_findings: Sequence[Finding], passed: str) -> str:
    """One ``testsuites`` element of findings.

    Args:
        all_findings: What failed.
        passed: Name of the one case when nothing did.
    """
    suites: dict[str, list[Finding]] = {}
    for finding in all_findings:
        name = finding.locations[0].filename if finding.locations else "run"
        suites.setdefault(name, []).append(finding)
    root = ET.Element(
        "testsuites",
        name="xladoctor",
        tests=str(max(1, len(all_findings))),
        failures=str(len(all_findings)),
        errors="0",
    )
    for name, findings in suites.items():
        suite = ET.SubElement(
            root, "testsuite", name=_legal(name), tests=str(len(findings)),
            failures=str(len(findings)), errors="0",
        )  # fmt: skip
        for finding in findings:
            _case(suite, finding)
    if not suites:
        suite = ET.SubElement(
            root, "testsuite", name="run", tests="1", failures="0", errors="0"
        )  # fmt: skip
        ET.SubElement(suite, "testcase", name=_legal(passed), classname="xladoctor")
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, finding: Finding) -> None:
    place = words.place(finding.locations[0]) if finding.locations else "run"
    case = ET.SubElement(
        suite, "testcase", name=_legal(f"{finding.code} {finding.name} {place}"),
        classname="xladoctor",
    )  # fmt: skip
    if finding.locations:
        case.set("file", _legal(finding.locations[0].filename))
        case.set("line", str(finding.locations[0].row))
    failure = ET.SubElement(
        case, "failure", message=_legal(finding.message), type=finding.severity.value
    )  # fmt: skip
    see = "".join(f"\nsee {other}" for other in words.related(finding))
    failure.text = _legal(f"{finding.message}\n{finding.suggestion}".strip() + see)


def _legal(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
