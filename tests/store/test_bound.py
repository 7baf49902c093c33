"""A run directory that stays below a size, and says the same."""

from __future__ import annotations

import json

import pytest

from tests.store.generate import Large, write
from tests.store.pods import START, host_run
from xladoctor import diagnosis, readings
from xladoctor.capture import rundir
from xladoctor.capture.agent.writer import SEGMENT, Writer
from xladoctor.errors import UsageError
from xladoctor.results import to_json
from xladoctor.store.bound import Bound
from xladoctor.store.launchers import Identity
from xladoctor.store.locations import located
from xladoctor.store.runs import load
from xladoctor.store.upload import Uploader


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The record of 8 cores and 2,000 steps, as their process would write it."""
    run = write(Large(1, 2_000), tmp_path_factory.mktemp("large") / "run")
    file = next(run.glob("hosts/0/*/p*/events.*.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def recorded(folder, rows, monkeypatch, most=None):
    """Write rows by the agent's own writer, under a bound."""
    folder.mkdir(parents=True)
    host_run().write(folder / "other")
    (folder / "other/manifest.json").rename(folder / "manifest.json")
    bound = Bound(folder, most) if most else None
    for name, value in (bound.environment if bound else {}).items():
        monkeypatch.setenv(name, value)
    writer = Writer(str(folder))
    largest = 0
    for at in range(0, len(rows), 100):
        writer.rows(rows[at : at + 100])
        if bound is not None:
            bound.look(at * 10.0)
            largest = max(largest, size(folder))
    monkeypatch.delenv(SEGMENT, raising=False)
    return largest


def size(folder):
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def report(source):
    return to_json(diagnosis.diagnose(source))


def test_it_stays_below_its_size_and_loses_nothing_that_is_counted(rows, tmp_path, monkeypatch):
    recorded(tmp_path / "whole", rows, monkeypatch)
    most = 2 * 2**20
    largest = recorded(tmp_path / "small", rows, monkeypatch, most)
    assert size(tmp_path / "whole") > 1.5 * most
    assert largest < most
    whole, small = (report(readings.load([tmp_path / name])) for name in ("whole", "small"))
    for name in ("steps", "compilations", "host_syncs", "fallbacks", "verdict"):
        assert whole["summary"][name] == small["summary"][name], name
    assert small["summary"]["seconds"] == pytest.approx(whole["summary"]["seconds"])
    assert [one["steps"] for one in small["cores"]] == [2_000] * 8
    assert len(small["steps"]) < len(whole["steps"])


def test_the_launcher_reads_all_files_of_a_record(rows, tmp_path, monkeypatch):
    recorded(tmp_path / "small", rows, monkeypatch, 2 * 2**20)
    (folder,) = rundir.processes(tmp_path / "small")
    kinds = [row["e"] for row in rundir.rows(folder)]
    assert kinds[0] == "process"
    assert kinds[-1] == "end"


def test_its_host_can_upload_it(rows, tmp_path, monkeypatch):
    recorded(tmp_path / "small", rows, monkeypatch, 2 * 2**20)
    place = located(tmp_path / "shared")
    who = Identity("job", "0", 1, None, None, None, "node")
    uploader = Uploader(
        tmp_path / "small", place, who, started=START, pid=1, version="0", every=60.0,
        clock=lambda: START + 60,
    )  # fmt: skip
    uploader.start()
    assert uploader.finish() is None
    assert report(load([tmp_path / "shared"]))["summary"]["steps"] == 2_000


def test_too_small_a_size(tmp_path):
    with pytest.raises(UsageError, match="1MiB at least"):
        Bound(tmp_path, 1000)
