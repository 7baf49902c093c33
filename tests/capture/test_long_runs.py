"""Long runs: what is written and what is kept in memory stays bounded."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.capture import rundir
from xladoctor.diagnosis import diagnose
from xladoctor.readings import load
from xladoctor.readings.run import read_run

SCRIPT = Path(__file__).with_name("long_run.py")
STEPS, GRAPHS = 100_000, 20_000


class Long:
    def __init__(self, folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, SCRIPT, folder],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.folder = folder
        self.blocks = json.loads(done.stdout)
        (process,) = rundir.processes(folder)
        self.size = (process / "events.jsonl").stat().st_size
        self.rows = list(rundir.rows(process))


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Long:
    return Long(tmp_path_factory.mktemp("long"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps(long):
    """Blocks of memory of the whole process, 95,000 steps apart."""
    early, late = long.blocks["after 5000 steps"], long.blocks[f"after {STEPS} steps"]
    assert late - early < 500


def test_the_record_stays_small_and_whole(long):
    kinds = collections.Counter(row["e"] for row in long.rows)
    assert (kinds["hook-off"], kinds["core-end"], kinds["end"]) == (0, 1, 1)
    assert kinds["step"] < 4000
    assert kinds["compilation"] == 5000
    assert kinds["compilations"] == (GRAPHS - 5000) // 500
    assert long.size < 5_000_000


@pytest.mark.slow
def test_nothing_of_it_is_lost_in_the_report(long):
    run = read_run(long.folder)
    total = STEPS + GRAPHS
    assert sum(row.last - row.first + 1 for row in run.steps if row.last is not None) == total
    assert len(run.compilations) == GRAPHS
    assert sum(row.count for row in run.syncs) == total
    assert sum(row.count for row in run.fallbacks) == total
    assert sum(row.count for row in run.launches) == total
    summary = diagnose(load([long.folder])).summary
    assert (summary.steps, summary.compilations) == (total, GRAPHS)
    assert summary.host_syncs == summary.fallbacks["aten::nonzero"] == total
