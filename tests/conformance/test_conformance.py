"""The runner of upstream's tests, on files invented here, and the page that it writes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import document, table
from tests.conformance.execution import PROJECT, File, Outcome, run

#: Invented: what upstream's files of unit tests can do to their process.
_UNIT_TESTS = """
import os
import unittest


class Some(unittest.TestCase):
    def test_a_passes(self):
        pass

    def test_b_ends_the_process(self):
        os._exit(3)

    def test_c_fails(self):
        self.assertEqual("this", "that")

    @unittest.skip("no such thing here")
    def test_d_is_skipped(self):
        pass


if __name__ == "__main__":
    unittest.main()
"""

_PAGE = PROJECT / "docs" / "conformance.md"
_MEASURED = Path(document.__file__).with_name("measured.json")


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_mp_units.py").write_text(_UNIT_TESTS)
    (tmp_path / "test" / "test_mp_script.py").write_text("print('cpu is not a TPU device')\n")
    return tmp_path


def test_each_test_has_an_outcome_behind_one_that_ends_its_process(checkout):
    found = run(checkout, File("test/test_mp_units.py"), cores=0, limit=300, devices=1)
    assert {one.test.rpartition(".")[2]: one.outcome for one in found} == {
        "test_a_passes": "passed",
        "test_b_ends_the_process": "died",
        "test_c_fails": "failed",
        "test_d_is_skipped": "skipped",
    }
    texts = {one.outcome: one.text for one in found}
    assert "'this' != 'that'" in texts["failed"]
    assert texts["skipped"] == "no such thing here"
    assert texts["passed"] == ""


def test_a_script_that_does_nothing_here_is_skipped(checkout):
    [found] = run(checkout, File("test/test_mp_script.py"), cores=0, limit=300, devices=1)
    assert (found.outcome, found.text) == ("skipped", "cpu is not a TPU device")


def test_files_are_found_once_and_as_the_last_row_has_them(checkout):
    known = dataclasses.replace(
        table.read(),
        _files=({"paths": ["test/*.py"]}, {"paths": ["test/*_units.py"], "widen": False}),
        _left_out=(),
    )
    files = known.files(checkout)
    assert [(one.path, one.widen) for one in files] == [
        ("test/test_mp_script.py", True),
        ("test/test_mp_units.py", False),
    ]


def test_without_a_checkout_there_is_one_sentence(tmp_path):
    for argument in ([], [str(tmp_path / "nowhere")]):
        done = subprocess.run(
            [sys.executable, "-m", "tests.conformance.run", *argument],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "make conformance PTXLA=folder" in done.stderr


def test_a_reason_is_for_its_test_its_cores_and_its_words():
    reason = table.Reason("test/a.py*", "cpu", "why", says="no reduction", cores=(2,))
    fits = Outcome("test/a.py::One.two", 2, "failed", "there is no reduction here")
    assert reason.fits(fits)
    assert not reason.fits(dataclasses.replace(fits, cores=4))
    assert not reason.fits(dataclasses.replace(fits, text="something else"))
    assert not reason.fits(dataclasses.replace(fits, test="test/b.py"))


def test_what_nobody_has_explained_is_said_to_be_so():
    known = dataclasses.replace(table.read(), reasons=())
    failed = Outcome("test/a.py", 2, "failed", "an error")
    assert document.owner(known, failed)[0] == document.NOT_EXPLAINED
    without = dataclasses.replace(failed, plain="failed")
    assert document.owner(known, without)[0] == "torch_xla"
    assert known.unexplained(dataclasses.replace(failed, told=("XLA410", "XLA411"))) == ["XLA410"]
    assert "1 failed (1 not explained)" in document.summary(known, [failed])


def test_the_page_is_what_the_script_writes_of_what_was_measured():
    known = table.read()
    kept = json.loads(_MEASURED.read_text())
    outcomes = [
        Outcome(**{**row, "told": tuple(row.get("told", ()))})
        for rows in kept.values()
        for row in rows
    ]
    assert _PAGE.read_text() == document.page(known, outcomes)
    unexplained = [
        one.test
        for one in outcomes
        if one.outcome != "passed" and document.owner(known, one)[0] == document.NOT_EXPLAINED
    ]
    assert unexplained == []
    assert [(one.test, codes) for one in outcomes if (codes := known.unexplained(one))] == []
