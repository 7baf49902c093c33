"""Real runs: the steps of loops of many kinds are found without help."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

import pytest
from test_profile_xla import profile

from xladoctor.capture import rundir

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

SCRIPT = Path(__file__).with_name("loops.py")
TURNS = 6

#: Loop to the steps that it has; 6 iterations each.
STEPS = {
    "train_sync": 6,
    "train_mark_step": 6,
    "train_optimizer_step": 6,
    "train_device_loader": 6,
    "train_parallel_loader": 6,
    "train_step_context": 6,
    "train_compile": 6,
    "train_dynamo": 6,
    "train_eager": 6,
    "train_two_optimizers": 12,  # optimizer steps, as the contract counts
    "by_hand_without_optimizer": 6,
    # The loader ends what came before its first batch too: that is no iteration.
    "evaluate_device_loader": 6,
    "evaluate_sync": 6,
    "evaluate_dynamo": 6,
    "evaluate_reads": 6,
    "evaluate_then_train": 6,
    "train_and_evaluate": 18,
    "odd_loop": 6,
}


class Loops:
    """The run of all loops: rows by the loop's name."""

    def __init__(self, folder: Path) -> None:
        words = ("-o", "run", "--output-format", "json", "--output-file", "r.json", "--")
        done = profile(folder, *words, sys.executable, str(SCRIPT), PJRT_DEVICE="CPU")
        assert done.returncode == 0, done.stderr
        pids = {}
        for line in done.stdout.splitlines():
            name, pid, status = line.split()
            assert status == "0", done.stderr
            pids[int(pid)] = name
        self.rows = {}
        self.order = []
        for process in rundir.processes(folder / "run"):
            rows = list(rundir.rows(process))
            name = pids[next(row["pid"] for row in rows if row["e"] == "process")]
            self.rows[name] = rows
            self.order.append(name)
        self.report = json.loads((folder / "r.json").read_text())

    def of(self, name: str, kind: str) -> list[dict]:
        return [row for row in self.rows[name] if row["e"] == kind]


@pytest.fixture(scope="module")
def loops(tmp_path_factory) -> Loops:
    return Loops(tmp_path_factory.mktemp("loops"))


def test_steps_of_every_kind_of_loop(loops):
    """Each forked child is a process of its own, and a core of its own in the report."""
    found = {
        name: core["steps"] for name, core in zip(loops.order, loops.report["cores"], strict=True)
    }
    assert found == STEPS


def test_steps_without_an_optimizer_are_said_to_be_so(loops):
    assert sum("No optimizer has stepped" in note for note in loops.report["notes"]) == 1
    for name in ("by_hand_without_optimizer", "evaluate_sync", "evaluate_reads"):
        assert sum(row.get("iterations", 0) for row in loops.of(name, "step")) == TURNS
        assert {row["last"] for row in loops.of(name, "step")} == {None}
    # An evaluation before a training has no steps, whatever iterations it took.
    numbered = [row["last"] for row in loops.of("evaluate_then_train", "step")]
    assert numbered == [None] * TURNS + list(range(1, TURNS + 1))


def test_where_a_step_ends_is_the_users_line(loops):
    source = SCRIPT.read_text().splitlines()
    ends = collections.defaultdict(set)
    for name, rows in loops.rows.items():
        sites = {row["id"]: row["frames"] for row in rows if row["e"] == "site"}
        for row in loops.of(name, "step"):
            for site, trigger, *_ in row["launches"]:
                own = next(frame for frame in sites[site] if frame[0] == str(SCRIPT))
                ends[name].add((trigger, source[own[1] - 1].strip()))
    assert ends["train_sync"] == ends["train_mark_step"] == {("step", "end()")}
    assert ends["train_device_loader"] == {
        ("step", "for x in loader(device) if loader else _data():")
    }
    assert ends["train_optimizer_step"] == {("step", "xm.optimizer_step(optimizer, barrier=True)")}
    assert ends["train_step_context"] == {("step", "with torch_xla.step():")}
    assert ends["train_compile"] == {("step", "step(x.to(device))")}
    assert ends["train_eager"] == {("eager", "optimizer.step()")}
    assert ends["evaluate_reads"] == {("read", "model(x.to(device)).cpu()")}
    assert ("step", "torch_xla.sync()") in ends["train_dynamo"]


def test_an_evaluation_by_a_device_loader(loops):
    """The loader ends its graphs (trigger "loader"), and its steps are none of the training's."""
    source = SCRIPT.read_text().splitlines()
    rows = loops.rows["train_and_evaluate"]
    sites = {row["id"]: row["frames"] for row in rows if row["e"] == "site"}
    functions = collections.defaultdict(set)
    for row in loops.of("train_and_evaluate", "compilation"):
        own = next(frame for frame in sites[row["site"]] if frame[0] == str(SCRIPT))
        functions[own[2]].add((row["trigger"], source[own[1] - 1].strip()))
    assert functions["_evaluate_lazily"] == {("loader", "for x in _on_device(device):")}
    assert {trigger for trigger, _ in functions["train_and_evaluate"]} == {"step"}
    # The reads of the other evaluation fall between two epochs, not into every step.
    reading = [
        row["first"]
        for row in loops.of("train_and_evaluate", "step")
        for _, what, *_ in row["syncs"]
        if what == "item"
    ]
    assert reading[:2] == [TURNS + 1, 2 * TURNS + 1]


def test_eager_mode_lists_what_it_compiles(loops):
    """torch_xla counts the same; all of it belongs to the first step, and no other is new."""
    rows = loops.of("train_eager", "compilation")
    assert len(rows) > 5
    assert {(row["trigger"], row["step"], row["executions"]) for row in rows} == {("eager", 1, 0)}
    assert {row["cause"]["kind"] for row in rows} == {"first-graph"}
    assert all(row["seconds"] > 0 for row in rows)
    (first, *_) = loops.of("train_eager", "step")
    assert first["parts"]["compile"] <= sum(row["seconds"] for row in rows)
    core = loops.order.index("train_eager")
    assert loops.report["cores"][core]["compilations"] == len(rows)


def test_nothing_is_wrong_with_them(loops):
    assert [f["code"] for f in loops.report["findings"] if f["severity"] == "error"] == []
