"""Real runs to which something happens: what was flushed is kept, the program goes its own way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_profile_xla import profile

from xladoctor.capture import rundir

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

SCRIPT = Path(__file__).with_name("hardships.py")


def _results(printed: str) -> dict[str, tuple[int, str]]:
    """Name to exit code and loss."""
    found = {}
    for line in printed.splitlines():
        *loss, name, _, code = line.split()
        found[name] = (int(code), " ".join(loss))
    return found


class Hardships:
    def __init__(self, folder: Path) -> None:
        words = ("-o", "run", "--output-file", "r.txt", "--", sys.executable, str(SCRIPT), "run")
        self.done = profile(folder, *words, PJRT_DEVICE="CPU")
        self.results = _results(self.done.stdout)
        self.names = {
            int(n[1]): n[0]
            for n in re.findall(r"(\w+) (\d+) -?\d+$", self.done.stdout, re.MULTILINE)
        }
        self.report = (folder / "r.txt").read_text() if (folder / "r.txt").exists() else ""
        self.folders = {}
        self.rows = {}
        for process in rundir.processes(folder / "run"):
            rows = list(rundir.rows(process))
            name = self.names[int(process.name[1:].partition("-")[0])]
            self.folders[name], self.rows[name] = process, rows

    def steps(self, name: str) -> list[int]:
        return [row["last"] for row in self.rows[name] if row["e"] == "step" and row["last"]]


@pytest.fixture(scope="module")
def hardships(tmp_path_factory) -> Hardships:
    return Hardships(tmp_path_factory.mktemp("hardships"))


def test_the_programs_do_what_they_do_without_xladoctor(hardships, tmp_path):
    plain = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "none")],
        env={**os.environ, "PJRT_DEVICE": "CPU"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert plain.returncode == hardships.done.returncode == 0
    assert hardships.results == _results(plain.stdout)
    codes = {name: code for name, (code, _) in hardships.results.items()}
    assert codes == {
        "killed": -9, "left": 3, "aborted_by_xla": -6, "full_disk": 0, "read_only": 0,
        "taken_away": 0, "forks_after_threads": 0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["killed", "left"])
def test_every_step_before_a_sudden_end_is_kept(hardships, name):
    assert hardships.steps(name) == [1, 2, 3, 4]
    assert hardships.rows[name][-1]["e"] != "end"


def test_a_full_disk_keeps_what_it_took(hardships):
    assert 0 < len(hardships.steps("full_disk")) < 6
    assert (hardships.folders["full_disk"] / "events.jsonl").stat().st_size <= 3072


def test_a_run_directory_that_takes_nothing_or_is_taken_away(hardships):
    assert "read_only" not in hardships.folders
    assert "taken_away" not in hardships.folders


def test_forks_after_threads_leave_the_record_whole(hardships):
    assert hardships.steps("forks_after_threads") == list(range(1, 9))
    assert hardships.rows["forks_after_threads"][-1]["e"] == "end"


def test_the_report_is_there_for_all_of_it(hardships):
    assert "Steps per core" in hardships.report
