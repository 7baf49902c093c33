"""The linter's findings and those of a run leave by one road: same places, fingerprints, fixes."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest

from xladoctor import catalogue
from xladoctor.findings import (
    Applicability,
    Edit,
    Finding,
    Fix,
    Location,
    Position,
    Severity,
)
from xladoctor.report import FORMATS, fingerprints, github, junit, lint_gitlab, render, sarif, words
from xladoctor.results import Report, Summary


def _found(row: int, message: str = "3 reads cost 1.5 s", **more) -> Finding:
    """An invented finding of a run."""
    place = Location("train.py", row, function="train")
    values = {"locations": (place,), "confirmed_by": ("runtime",), **more}
    return Finding("XLA101", "host-sync-in-step", Severity.WARNING, message, **values)


def _report(*findings: Finding) -> Report:
    return Report(Summary("The host waits.", "It reads.", "Read later."), findings=findings)


def _results(*findings: Finding) -> list[dict]:
    (run,) = json.loads(render(_report(*findings), "sarif"))["runs"]
    return run["results"]


def test_two_findings_of_one_function_have_two_fingerprints_in_the_sarif_of_a_run():
    first, second = (item["partialFingerprints"] for item in _results(_found(10), _found(20)))
    assert first != second


def test_a_fingerprint_outlives_lines_times_and_the_order_by_cost():
    before = [_found(10), _found(20), _found(30, "2 reads cost 9 ms")]
    after = [_found(row + 7, f"5 reads cost {row} ms") for row in (10, 20, 30)]
    known = dict(zip((10, 20, 30), fingerprints.of(before), strict=True))
    shuffled = random.Random(0).sample(after, 3)
    for finding, fingerprint in zip(shuffled, fingerprints.of(shuffled), strict=True):
        assert fingerprint == known[finding.locations[0].row - 7]


def test_every_format_with_fingerprints_has_the_same():
    findings = [_found(10, "`loss.item()` waits", confirmed_by=("lint",)), _found(20), _found(30)]
    wanted = fingerprints.of(findings)
    (run,) = json.loads(sarif.of(findings, "xladoctor/lint/"))["runs"]
    assert [r["partialFingerprints"]["xladoctor/v1"] for r in run["results"]] == wanted
    assert [r["fingerprint"] for r in json.loads(lint_gitlab.render(findings))] == wanted


def test_a_finding_of_the_linter_is_the_same_wherever_it_stands_among_others():
    read = _found(10, "`loss.item()` waits", confirmed_by=("lint",))
    other = _found(5, "`loss.cpu()` waits", confirmed_by=("lint",))
    assert fingerprints.of([read])[0] == fingerprints.of([other, read])[1]


def test_the_sarif_of_a_run_keeps_the_fix_and_the_reasons():
    fix = Fix(
        Applicability.SAFE,
        "replace it by `loss.detach()`",
        (Edit("loss.detach()", Position(10, 5), Position(10, 16)),),
    )
    place = Location("train.py", 10, 5, 10, 16, function="train")
    loop = Location("train.py", 8, function="train", note="step loop")
    (result,) = _results(_found(10, locations=(place,), related=(loop,), fix=fix))
    ((change,),) = [item["artifactChanges"] for item in result["fixes"]]
    assert change["artifactLocation"]["uri"] == "train.py"
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 10, "startColumn": 5, "endLine": 10, "endColumn": 16},
            "insertedContent": {"text": "loss.detach()"},
        }
    ]
    (related,) = result["relatedLocations"]
    assert related["message"]["text"] == "step loop"
    assert related["physicalLocation"]["region"]["startLine"] == 8


CELL = Location("n.ipynb", 6, 23, 6, 30, cell=2)


@pytest.mark.parametrize("output_format", [name for name in FORMATS if name != "json"])
def test_formats_for_people_count_the_cells_of_a_notebook_from_1(output_format):
    text = render(_report(_found(6, locations=(CELL,))), output_format, width=120)
    if output_format == "sarif":
        assert '"name": "cell 3, line 6"' in text
        assert '"startLine": 6' not in text  # it would be a line of the notebook's JSON
    elif output_format == "markdown":
        assert "n.ipynb:cell 3:6" in text.replace("\\", "")
    else:
        assert "n.ipynb:cell 3:6" in text
    assert "cell 2" not in text


def test_a_place_is_written_in_one_way():
    assert (CELL.at, CELL.exactly, CELL.inside) == (
        "n.ipynb:cell 3:6",
        "n.ipynb:cell 3:6:23",
        "cell 3, line 6",
    )
    plain = dataclasses.replace(CELL, filename="train.py", cell=None)
    assert (plain.at, plain.exactly, plain.inside) == ("train.py:6", "train.py:6:23", "line 6")
    assert words.place(CELL) == CELL.at
    assert CELL.at in junit.of([_found(6, locations=(CELL,))], "")


def test_an_annotation_of_github_is_the_same_for_lint_and_a_run():
    loop = Location("train.py", 8, note="step loop")
    finding = _found(10, related=(loop,), suggestion="read it later")
    annotation, verdict = render(_report(finding), "github").splitlines()
    assert github.of([finding]) == annotation + "\n"
    assert annotation.endswith("%0AInstead: read it later%0ASee train.py:8 (step loop)")
    assert verdict == "::notice title=xladoctor::The host waits."


@pytest.mark.parametrize("page", catalogue.pages().values(), ids=lambda page: page.code)
def test_the_help_in_sarif_is_the_page_without_its_header(page):
    finding = dataclasses.replace(_found(10), code=page.code, name=page.name)
    (run,) = json.loads(sarif.of([finding], "xladoctor/lint/"))["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    text = rule["help"]["markdown"]
    assert text.startswith("## What it does\n")
    assert "since =" not in text
    # All sections but that of the tests.
    assert text.count("\n## ") + 2 == page.text.count("\n## ")
    assert "## Tests" not in text
