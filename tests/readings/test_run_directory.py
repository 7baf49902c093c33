from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.invented import FILE, InventedRun
from xladoctor.errors import SourceError
from xladoctor.readings import load
from xladoctor.readings.places import location
from xladoctor.readings.run import read_run

if TYPE_CHECKING:
    from pathlib import Path


def test_all_tables_are_read(tmp_path: Path) -> None:
    run = InventedRun()
    run.metrics = "Counter: MarkStep\n  Value: 3\n"
    run.steps(3, syncs=[(52, "item", 2, 0.1, 0)], fallbacks=[(44, "aten::bincount", 1, 0.01)])
    run.compilation(0, 1, graph="g", cause={"kind": "input-shape", "detail": "x", "site": 0})
    run.rows += [
        {"e": "error", "core": 1, "step": 3, "type": "ValueError", "message": "no",
         "traceback": "T", "site": run.site(60)},
        {"e": "hang", "core": 0, "t": 5.0, "site": 0, "state": "hang", "waits_for": "core 1"},
        {"e": "divergence", "t": 5.0, "core": 1, "message": "differs"},
        {"e": "hook-off", "hook": "read:time", "error": "not in this version"},
        {"e": "note", "text": "a note"},
        {"e": "tomorrow", "key": 1},
    ]  # fmt: skip
    run.end()
    (read,) = load([run.write(tmp_path / "run")]).runs
    assert read.manifest.command == ("python", "train.py")
    assert [(p.pid, p.torch_xla, p.ended) for p in read.processes] == [(5, "2.9.0", True)]
    assert [(c.core, c.steps, c.failed) for c in read.cores] == [(0, 3, False), (1, 3, False)]
    assert len(read.steps) == 6
    assert sum(row.count for row in read.syncs) == 12
    assert {row.operation for row in read.fallbacks} == {"aten::bincount"}
    assert read.launches[0].trigger == "step"
    assert read.compilations[0].cause is not None
    assert read.compilations[0].cause.location == location(
        ((FILE, 52, "train"),), "/home/user/project"
    )
    assert read.errors[0].frames[0] == (FILE, 60, "train")
    assert read.hangs[0].waits_for == "core 1"
    assert read.divergences[0].message == "differs"
    assert read.metrics[0].counters == {"MarkStep": 3}
    assert read.notes == ("not measured from there on: read:time (not in this version)", "a note")


@pytest.mark.parametrize("cut", [1, 20, 200, 900])
def test_a_killed_run_is_read_up_to_its_last_whole_row(tmp_path: Path, cut: int) -> None:
    run = InventedRun(ended=None, exit_code=None, complete=False)
    run.steps(5)
    path = run.write(tmp_path / "run")
    events = path / "p5-1" / "events.jsonl"
    events.write_text(events.read_text()[:-cut])
    whole = [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]
    (read,) = load([path]).runs
    assert len(read.steps) == sum(row["e"] == "step" for row in whole)
    assert "the run was cut short: what is shown is what was recorded until then" in read.notes
    assert any("it was killed" in note for note in read.notes)


def test_a_line_in_the_middle_that_is_no_row_is_left_out_and_named(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(2)
    path = run.write(tmp_path / "run")
    events = path / "p5-1" / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join([*lines[:4], "gibberish\n", *lines[4:]]))
    (read,) = load([path]).runs
    assert len(read.steps) == 4
    assert any("events.jsonl:5: this line could not be read" in note for note in read.notes)


@pytest.mark.parametrize("version", [2, None, "1"])
def test_another_version_is_refused_in_one_sentence(tmp_path: Path, version: object) -> None:
    path = InventedRun(schema_version=version).write(tmp_path / "run")
    with pytest.raises(SourceError, match=r"read it with the version that wrote it"):
        load([path])


def test_another_version_of_the_events_is_refused_too(tmp_path: Path) -> None:
    run = InventedRun()
    run.rows[0]["version"] = 7
    with pytest.raises(SourceError, match=r"events\.jsonl:1: this record has form 7"):
        load([run.write(tmp_path / "run")])


def test_a_folder_that_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="this folder is not a run directory"):
        load([tmp_path])


def test_a_run_without_its_manifest_is_still_read(tmp_path: Path) -> None:
    run = InventedRun()
    run.steps(2)
    run.manifest = None
    read = load([run.write(tmp_path / "run")])
    assert len(read.runs[0].steps) == 4
    assert "manifest.json is missing: the command and its end are not known" in read.notes


def test_the_place_is_the_first_line_outside_installed_packages() -> None:
    frames = (("/venv/lib/python3.11/site-packages/timm/x.py", 3, "f"), (FILE, 9, "train"))
    place = location(frames, "/home/user/project")
    assert place is not None
    assert (place.filename, place.row, place.function) == ("train.py", 9, "train")
    assert location(frames[:1], None) is not None
    assert location((), None) is None


@pytest.mark.parametrize(
    "damage",
    [{"t0": None}, {"t1": 1e999}, {"parts": {"compile": "x"}}, {"last": 10**12}, {"last": 0},
     {"syncs": [[0, "item"]]}, {"fallbacks": [[0, "aten::x", None, 1.0]]}, {"launches": 3}],
)  # fmt: skip
def test_a_damaged_row_is_left_out_as_a_whole(tmp_path: Path, damage: dict[str, object]) -> None:
    run = InventedRun(1)
    run.steps(3, syncs=[(52, "item", 1, 0.1, 0)])
    next(row for row in run.rows if row["e"] == "step" and row["first"] == 2).update(damage)
    (read,) = load([run.write(tmp_path / "run")]).runs
    assert [row.first for row in read.steps] == [1, 3]
    assert sum(row.count for row in read.syncs) == 2
    assert sum("could not be read" in note for note in read.notes) == 1


# -- steps that no optimizer takes ----------------------------------------------------------------
def _iterations(run: InventedRun, *iterations: int) -> None:
    for count in iterations:
        run.step(0, None, syncs=[(52, "item", 1, 0.01, 0)])
        run.rows[-1]["iterations"] = count


def test_iterations_are_the_steps_of_a_core_that_has_no_others(tmp_path: Path) -> None:
    run = InventedRun(1)
    _iterations(run, 1, 1, 10, 0)
    run.compilation(0, 1, iteration=3)
    run.end()
    read = read_run(run.write(tmp_path / "run"))
    assert [(row.first, row.last) for row in read.steps] == [(1, 1), (2, 2), (3, 12), (None, None)]
    assert [row.first for row in read.syncs] == [1, 2, 3, None]
    assert [(row.steps, row.iterations) for row in read.cores] == [(12, True)]
    assert [row.step for row in read.compilations] == [3]
    assert sum("No optimizer" in note for note in read.notes) == 1


def test_turns_before_a_training_are_no_steps(tmp_path: Path) -> None:
    run = InventedRun(1)
    _iterations(run, 1, 1)
    run.compilation(0, 1, iteration=2)
    run.step(0, 1)
    run.end()
    read = read_run(run.write(tmp_path / "run"))
    assert [(row.first, row.last) for row in read.steps] == [(None, None), (None, None), (1, 1)]
    assert [(row.steps, row.iterations) for row in read.cores] == [(1, False)]
    assert [row.step for row in read.compilations] == [1]
    assert not any("No optimizer" in note for note in read.notes)


def test_what_a_program_marks_are_its_only_steps(tmp_path: Path) -> None:
    run = InventedRun(1)
    for step in (1, 2, 3):
        run.step(0, step, syncs=[(52, "item", 1, 0.01, 0)])
    run.rows.append({"e": "marked", "core": 0})
    run.step(0, 1)
    run.step(0, 2)
    run.end()
    read = read_run(run.write(tmp_path / "run"))
    assert [row.first for row in read.steps] == [None, None, None, 1, 2]
    assert [row.first for row in read.syncs] == [None] * 3
