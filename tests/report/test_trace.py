"""``--trace``: a recorded run as Perfetto reads it. The runs are real but where it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.invented import InventedRun
from tests.report.traces import slices
from xladoctor.cli.app import main
from xladoctor.diagnosis import diagnose
from xladoctor.readings import load
from xladoctor.report import words

ROOT = Path(__file__).resolve().parents[2]
RECORDED = sorted((ROOT / "sample_runs").glob("*/recorded/*"))


def traced(source: Path, folder: Path) -> dict:
    out = folder / "trace.json"
    arguments = ["report", str(source), "--trace", str(out), "--output-format", "concise"]
    assert main(arguments) == 0
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("source", RECORDED, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_a_recorded_run_has_a_track_a_core_with_all_its_steps(source: Path, tmp_path: Path) -> None:
    threads = slices(traced(source, tmp_path))
    report = diagnose(load([source]))
    assert len(threads) == report.summary.cores == len(report.cores)
    for core in report.cores:
        ((_, events),) = [(at, found) for at, found in threads.items() if at[0] == core.core + 1]
        steps = [event["name"] for event in events if event["cat"] == "step"]
        assert steps == [f"step {number}" for number in range(1, (core.steps or 0) + 1)]


def test_steps_parts_and_lines_add_up_to_what_the_report_counts(tmp_path: Path) -> None:
    source = ROOT / "sample_runs" / "ct_slices" / "recorded" / "runnable"
    report = diagnose(load([source]))
    threads = slices(traced(source, tmp_path))
    names = {part: words.PARTS[part] for part in words.PARTS}
    for (process, _), events in threads.items():
        core = process - 1
        outer = [event for event in events if event["cat"] in ("step", "between")]
        parts = [event for event in events if names.get(event["cat"]) == event["name"]]
        whole, divided = (sum(event["dur"] for event in group) for group in (outer, parts))
        assert divided == pytest.approx(whole, rel=1e-3)
        reads = sum(event["args"]["host syncs"] for event in outer)
        assert reads == sum(item.count for item in report.reads if item.core == core)
        on_cpu = sum(event["args"]["CPU fallbacks"] for event in outer)
        assert on_cpu == sum(item.count for item in report.fallbacks if item.core == core)
        new = sum(event["args"]["new graphs"] for event in outer)
        assert new == report.cores[core].compilations
    told = [e["args"]["why it was new"] for events in threads.values() for e in events
            if "why it was new" in e.get("args", {})]  # fmt: skip
    measured = [item for item in report.compilations if item.seconds is not None]
    assert sorted(told) == sorted(words.cause(item) for item in measured)


def test_an_invented_long_run_says_where_it_shows_blocks(tmp_path: Path) -> None:
    run = InventedRun(cores=1)
    run.step(0, 1)
    run.step(0, 2, 11, execute=5.0)
    run.rows[-1] |= {"fastest": 0.3, "slowest": 1.4}
    run.end()
    document = traced(run.write(tmp_path / "run"), tmp_path)
    (events,) = slices(document).values()
    (block,) = [event for event in events if event["cat"] == "block"]
    assert block["name"] == "steps 2-11"
    assert block["args"]["steps"] == 10
    assert (block["args"]["fastest (s)"], block["args"]["slowest (s)"]) == (0.3, 1.4)
    assert "several steps share one block" in document["otherData"]["Blocks"]


def test_where_an_invented_run_stood_still_is_marked(tmp_path: Path) -> None:
    run = InventedRun(cores=2)
    run.steps(2)
    run.rows.append({"e": "hang", "core": 1, "t": 3.5, "site": run.site(60), "state": "hang",
                     "waits_for": "all_reduce", "for_cores": [0], "steps": 2})  # fmt: skip
    document = traced(run.write(tmp_path / "run"), tmp_path)
    (stop,) = [event for event in document["traceEvents"] if event["ph"] == "i"]
    assert (stop["pid"], stop["name"]) == (2, "stands still: all_reduce")
    assert stop["args"]["line"] == "train.py:60"


def test_hostile_names_stay_values_of_json(tmp_path: Path) -> None:
    evil = '</script>"\u202e\x1b]0;x\x07'
    run = InventedRun(cores=1)
    run.step(0, 1, syncs=[(52, evil, 1, 0.2, 0)], host_sync=0.2)
    document = traced(run.write(tmp_path / "run"), tmp_path)
    (events,) = slices(document).values()
    assert [event["name"] for event in events if evil in event["name"]] == [f"train.py:52 {evil}"]
    assert "\u202e" not in (tmp_path / "trace.json").read_text(encoding="utf-8")


def test_text_without_times_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.txt").write_text("Counter: MarkStep\n  Value: 232\n")
    assert main(["report", str(tmp_path / "m.txt"), "--trace", str(tmp_path / "t.json")]) == 2
    assert "--trace needs a run directory" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()
