"""What the formats of others demand, written down from their specifications, and a check.

SARIF 2.1.0 (OASIS, sections 3.13 to 3.57), the Code Quality report of GitLab, JUnit XML as Jenkins
and GitLab read it, and the workflow commands of GitHub. An object may have the keys named here and
no others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET


@dataclass
class Shape:
    """An object: what it must have, what it may have."""

    must: dict = field(default_factory=dict)
    may: dict = field(default_factory=dict)


def check(value, shape, where="$"):
    """Raise AssertionError at the first place that is not as demanded."""
    if isinstance(shape, Shape):
        assert isinstance(value, dict), f"{where} is no object"
        for key in shape.must:
            assert key in value, f"{where} has no {key}"
        for key, item in value.items():
            known = {**shape.must, **shape.may}
            assert key in known, f"{where}.{key} is unknown"
            check(item, known[key], f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{where} is no array"
        for number, item in enumerate(value):
            check(item, shape[0], f"{where}[{number}]")
    elif isinstance(shape, set):
        assert value in shape, f"{where} is {value!r}, none of {shape}"
    elif callable(shape) and not isinstance(shape, type):
        assert shape(value), f"{where} is {value!r}"
    else:
        assert isinstance(value, shape), f"{where} is {value!r}"
        assert not isinstance(value, bool), f"{where} is {value!r}"


def positive(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def natural(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def uri(value):
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]+", value)


def anything(_value):
    return True


MESSAGE = Shape({"text": str}, {"markdown": str, "id": str})
HELP = Shape({"text": str}, {"markdown": str})
REGION = Shape(
    {"startLine": positive}, {"startColumn": positive, "endLine": positive, "endColumn": positive}
)
ARTIFACT = Shape({"uri": uri}, {"uriBaseId": str})
PHYSICAL = Shape({"artifactLocation": ARTIFACT}, {"region": REGION})
LOGICAL = Shape({}, {"name": str, "fullyQualifiedName": str, "kind": str})
LOCATION = Shape(
    {},
    {
        "id": natural,
        "physicalLocation": PHYSICAL,
        "logicalLocations": [LOGICAL],
        "message": MESSAGE,
    },
)
REPLACEMENT = Shape({"deletedRegion": REGION}, {"insertedContent": Shape({"text": str})})
CHANGE = Shape({"artifactLocation": ARTIFACT, "replacements": [REPLACEMENT]})
RESULT = Shape(
    {"message": MESSAGE},
    {
        "ruleId": str, "ruleIndex": natural, "level": {"none", "note", "warning", "error"},
        "locations": [LOCATION], "relatedLocations": [LOCATION],
        "fixes": [Shape({"artifactChanges": [CHANGE]}, {"description": MESSAGE})],
        "partialFingerprints": lambda value: all(isinstance(v, str) for v in value.values()),
        "properties": anything,
    },
)  # fmt: skip
RULE = Shape(
    {"id": str},
    {
        "name": str, "shortDescription": HELP, "fullDescription": HELP, "help": HELP,
        "helpUri": uri,
        "defaultConfiguration": Shape({}, {"level": {"none", "note", "warning", "error"}}),
        "properties": anything,
    },
)  # fmt: skip
DRIVER = Shape(
    {"name": str}, {"version": str, "semanticVersion": str, "informationUri": uri, "rules": [RULE]}
)
RUN = Shape(
    {"tool": Shape({"driver": DRIVER})},
    {
        "results": [RESULT], "automationDetails": Shape({}, {"id": str}),
        "columnKind": {"utf16CodeUnits", "unicodeCodePoints"},
    },
)  # fmt: skip
SARIF = Shape({"version": {"2.1.0"}, "runs": [RUN]}, {"$schema": uri})


def check_sarif(log):
    """A SARIF log; also what the standard says of several keys together."""
    check(log, SARIF)
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            ids = [place["id"] for place in result.get("relatedLocations", ()) if "id" in place]
            assert len(set(ids)) == len(ids)


ISSUE = Shape(
    {
        "description": str, "check_name": str, "fingerprint": str,
        "severity": {"info", "minor", "major", "critical", "blocker"},
        "location": Shape(
            {"path": lambda value: isinstance(value, str) and not value.startswith("./"),
             "lines": Shape({"begin": positive}, {"end": positive})}
        ),
    },
    {"type": {"issue"}, "categories": [str]},
)  # fmt: skip


def check_gitlab(issues):
    """A Code Quality report: fingerprints tell its issues apart."""
    check(issues, [ISSUE])
    assert len({item["fingerprint"] for item in issues}) == len(issues)


def check_junit(text):
    """Suites of cases whose numbers are true."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    suites = list(root)
    assert {suite.tag for suite in suites} == {"testsuite"}
    for node in (root, *suites):
        cases = list(node.iter("testcase"))
        failed = [case for case in cases if case.find("failure") is not None]
        assert (int(node.get("tests")), int(node.get("failures"))) == (len(cases), len(failed))
        assert node.get("name")
        assert node.get("errors") == "0"
    for case in root.iter("testcase"):
        assert case.get("name")
        assert case.get("classname")
        assert {child.tag for child in case} <= {"failure"}
        for failure in case:
            assert failure.get("message")


_COMMAND = re.compile(r"^::(error|warning|notice)( (?P<options>[^:]+))?::(?P<message>.*)$")


def check_github(text):
    """One workflow command a line, with the options that GitHub knows, escaped."""
    for line in text.splitlines():
        found = _COMMAND.match(line)
        assert found, line
        for option in (found["options"] or "").split(","):
            key, _, value = option.partition("=")
            assert key in {"title", "file", "line", "endLine", "col", "endColumn"}, option
            assert value, option
            if key in {"line", "endLine", "col", "endColumn"}:
                assert int(value) >= 1
        assert re.search(r"%(?!25|0D|0A|3A|2C)", line) is None, line
