"""The page of published silent faults, and the measured results that it is written of."""

from __future__ import annotations

import json

import pytest

from tests.accuracy.silent import document, run

_FAULT = {"program": "some", "title": "a fault", "source": "issue", "codes": ["XLA303"]}
_HEALTHY = {"program": "well"}
_PARTS = {"step": 1, "way": "xla", "what": "loss", "row": 3, "because": None}
_TABLE = {"fault": [_FAULT], "healthy": [_HEALTHY]}


def _finding(code="XLA303", severity="error", row=3):
    return {"code": code, "severity": severity, "row": row, "step": None}


def test_the_page_is_that_of_the_measured_results():
    page = document.page(run.read_table(), run.read_measured(), run.marked)
    assert run.PAGE.read_text(encoding="utf-8") == page, "make accuracy-silent writes it"


def test_the_goal_is_met_and_no_healthy_program_is_accused():
    table, measured = run.read_table(), run.read_measured()
    assert len(table["fault"]) >= 25
    assert len(table["healthy"]) >= 20
    assert len(document.found(table, measured)) >= document.GOAL
    assert document.accused(table, measured) == []


def test_what_was_measured_are_the_programs_as_they_are():
    measured = run.read_measured()
    names = [case["program"] for kind in run.read_table().values() for case in kind]
    changed = [name for name in names if measured.get(name, {}).get("digest") != run.digest(name)]
    assert changed == [], "make accuracy-silent measures them"


def test_the_page_says_why_a_fault_is_missed():
    table, measured = run.read_table(), run.read_measured()
    found = document.found(table, measured)
    missed = [case for case in table["fault"] if case["program"] not in found]
    assert all(case.get("missed") for case in missed)
    assert not any(case.get("missed") for case in table["fault"] if case["program"] in found)


def test_no_path_of_a_machine_is_kept():
    text = json.dumps(run.read_measured())
    assert str(run.ROOT) not in text
    assert "/tmp/" not in text


def test_every_fault_is_marked_in_its_program_and_has_a_source():
    for case in run.read_table()["fault"]:
        assert run.marked(case["program"]), case["program"]
        assert "https://" in case["source"]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"lint": [_finding()]}, ["some"]),
        ({"lint": [_finding("XLA101")]}, []),
        ({"run": {"cannot": "it failed"}}, []),
        ({"verify": {"equal": 4, "ways": ["cpu", "xla"]}}, []),
        (
            {"verify": _PARTS},
            ["some"],
        ),
        ({}, []),
    ],
)
def test_a_fault_is_found_by_its_own_finding_or_by_ways_that_part(row, wanted):
    assert document.found(_TABLE, {"some": row}) == wanted


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"lint": [_finding("XLA101", "warning")]}, []),
        ({"run": [_finding("XLA101")]}, ["well"]),
        (
            {"verify": _PARTS},
            ["well"],
        ),
        ({"verify": {"cannot": "it is not deterministic"}}, []),
    ],
)
def test_a_healthy_program_is_accused_by_errors_and_by_ways_that_part(row, wanted):
    assert document.accused(_TABLE, {"well": row}) == wanted


def test_what_was_not_run_is_said_and_a_line_that_is_right_is_bold():
    page = document.page(_TABLE, {"some": {"run": [_finding()]}}, lambda _: {3})
    assert "| not run | XLA303, **line 3** | not run |" in page
