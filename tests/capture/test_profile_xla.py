"""Real runs: what is recorded is what the programs are known to do."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import programs
import pytest

from tests.report.traces import slices
from xladoctor.capture import rundir

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[2]


def profile(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    base = {key: value for key, value in os.environ.items() if not key.startswith("PJRT")}
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", *words],
        env={**base, "PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def all_rows(run_dir: Path) -> list[dict]:
    return [row for folder in rundir.processes(run_dir) for row in rundir.rows(folder)]


class Run:
    """A finished profile: its process and its rows."""

    def __init__(self, done: subprocess.CompletedProcess[str], run_dir: Path) -> None:
        self.done = done
        self.run_dir = run_dir
        self.rows = all_rows(run_dir)
        self.sites = {row["id"]: row["frames"] for row in self.of("site")}

    def of(self, kind: str) -> list[dict]:
        return [row for row in self.rows if row["e"] == kind]

    def line(self, site: int) -> int:
        return self.sites[site][0][1]


@pytest.fixture(scope="module")
def cores(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("cores")
    (folder / "train.py").write_text(programs.CORES)
    done = profile(
        folder, "--simulate-cores", "8", "-o", "run", "--output-format", "json", "--output-file",
        "report.json", "--html", "page.html", "--trace", "trace.json", "--",
        sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Run(done, folder / "run")


def test_program_prints_what_it_prints_without_xladoctor(cores):
    assert cores.done.stdout.startswith("mean loss ")
    assert cores.done.stdout.count("\n") == 1
    assert _foreign(cores.done) == []


def _foreign(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What stands in the program's stderr beside what the launcher says before and behind it.

    On a busy machine XLA writes of collectives that have waited for 5 seconds.
    """
    known = ("xladoctor: ", "external/xla/")
    return [line for line in done.stderr.splitlines() if not any(one in line for one in known)]


def test_every_core_is_there_with_its_steps(cores):
    ends = {row["core"]: (row["steps"], row["failed"]) for row in cores.of("core-end")}
    assert ends == dict.fromkeys(range(8), (programs.STEPS, False))
    covered = collections.defaultdict(list)
    for row in cores.of("step"):
        if row["first"] is not None:
            covered[row["core"]] += range(row["first"], row["last"] + 1)
    assert dict(covered) == {core: list(range(1, 11)) for core in range(8)}


def test_compilations_are_counted_for_each_core_as_its_own_process_would(cores):
    step, fallback = (programs.line(programs.CORES, mark) for mark in ("STEP", "FALLBACK"))
    by_core = collections.defaultdict(list)
    for row in cores.of("compilation"):
        by_core[row["core"]].append((cores.line(row["site"]), row["trigger"], row["executions"]))
    expected = [(step, "step", 0), (fallback, "fallback", 0), (step, "step", 9)]
    assert {core: sorted(rows) for core, rows in by_core.items()} == dict.fromkeys(
        range(8), sorted(expected)
    )
    graphs = collections.defaultdict(list)
    for row in cores.of("compilation"):
        graphs[row["graph"]].append(row)
    assert len(graphs) == 3
    for rows in graphs.values():
        compiled = [row for row in rows if not row["reused"]]
        assert len(compiled) == 1
        assert compiled[0]["seconds"] > 0
        assert all(row["seconds"] is None for row in rows if row["reused"])


def test_the_trace_has_every_step_of_every_core(cores):
    document = json.loads((cores.run_dir.parent / "trace.json").read_text())
    threads = slices(document)
    assert len(threads) == 8
    for events in threads.values():
        names = [event["name"] for event in events if event["cat"] == "step"]
        assert names == [f"step {number}" for number in range(1, programs.STEPS + 1)]
        assert sum(e["args"]["new graphs"] for e in events if e["cat"] in ("step", "between")) == 3


def test_causes(cores):
    causes = {
        (cores.line(row["site"]), row["cause"]["kind"], row["cause"]["detail"])
        for row in cores.of("compilation")
    }
    step, fallback = (programs.line(programs.CORES, mark) for mark in ("STEP", "FALLBACK"))
    assert causes == {
        (step, "first-graph", ""),
        (fallback, "first-graph", ""),
        (step, "input-shape", "x: f32[16,24] -> f32[10,24]"),
    }


@pytest.mark.parametrize(
    ("table", "mark", "what", "count"),
    [
        ("syncs", "READ", "item", programs.READS),
        ("fallbacks", "FALLBACK", "aten::nonzero", programs.FALLBACKS),
        ("launches", "STEP", "step", programs.STEPS),
        ("launches", "FALLBACK", "fallback", programs.FALLBACKS),
    ],
)
def test_counts_by_core_and_line(cores, table, mark, what, count):
    counted = collections.Counter()
    for row in cores.of("step"):
        for site, name, number, *_ in row[table]:
            counted[row["core"], cores.line(site), name] += number
    line = programs.line(programs.CORES, mark)
    assert {core: counted[core, line, what] for core in range(8)} == dict.fromkeys(range(8), count)
    if table != "launches":
        assert {name for _, _, name in counted} == {what}


def test_a_fallback_costs_more_than_fetching_its_inputs(cores):
    """To its end, computing and sending back included; the steps' parts hold all of it."""
    whole, parts = collections.Counter(), collections.Counter()
    for row in cores.of("step"):
        parts[row["core"]] += row["parts"]["fallback"]
        for _, _, _, seconds, fetching in row["fallbacks"]:
            assert 0 <= fetching < seconds  # equal if its end had not been seen
            whole[row["core"]] += seconds
    assert sorted(whole) == list(range(8))
    for core, seconds in whole.items():
        assert parts[core] >= seconds - 2e-6  # both are rounded


def test_uploads_are_counted(cores):
    sent = collections.Counter()
    for row in cores.of("step"):
        sent[row["core"]] += row["transfers"]["to_device"]
    # Four parameters of the model and one batch a step.
    assert dict(sent) == dict.fromkeys(range(8), 4 + programs.STEPS)


def test_parts_add_up(cores):
    spans = collections.Counter()
    for row in cores.of("step"):
        total = row["t1"] - row["t0"]
        assert sum(row["parts"].values()) == pytest.approx(total, abs=1e-6)
        assert min(row["parts"].values()) >= 0
        spans[row["core"]] += total
    began = {row["core"]: row["t"] for row in cores.of("core-start")}
    for row in cores.of("core-end"):
        assert spans[row["core"]] == pytest.approx(row["t"] - began[row["core"]], abs=1e-6)


def test_a_core_that_waits_for_anothers_compilation_has_compiled(cores):
    """As in a process of its own, as far as it has waited.

    All cores meet before a graph with a collective, so each has waited for the whole compilation
    of the step's graphs; the fallback's graph has none, and who comes late has waited less.
    """
    seconds = {}
    for row in cores.of("compilation"):
        if not row["reused"]:
            seconds[row["trigger"], row["step"]] = row["seconds"]
    assert sorted(seconds) == [("fallback", 2), ("step", 1), ("step", 10)]
    booked = collections.Counter()
    for row in cores.of("step"):
        booked[row["core"], row["first"]] += row["parts"]["compile"]
    for core in range(8):
        for step in (1, 10):
            assert booked[core, step] == pytest.approx(seconds["step", step], abs=1e-6)
        # The fallback comes after the end of step 1, so it belongs to step 2.
        assert 0 <= booked[core, 2] <= seconds["fallback", 2] + 1e-6
    assert max(booked[core, 2] for core in range(8)) == pytest.approx(
        seconds["fallback", 2], abs=1e-6
    )
    assert {step for (_, step), time in booked.items() if time} <= {1, 2, 10}


def test_report_and_page(cores):
    report = json.loads((cores.run_dir.parent / "report.json").read_text())
    summary = report["summary"]
    assert (summary["cores"], summary["steps"]) == (8, programs.STEPS)
    assert (summary["compilations"], summary["compilations_after_warmup"]) == (3, 1)
    assert summary["fallbacks"] == {"aten::nonzero": 8 * programs.FALLBACKS}
    assert summary["host_syncs"] == 8 * programs.READS
    assert "train.py" in (cores.run_dir.parent / "page.html").read_text()


def test_manifest_and_process(cores):
    manifest = rundir.read_manifest(cores.run_dir)
    assert (manifest.exit_code, manifest.signal, manifest.complete) == (0, None, True)
    assert manifest.simulated_cores == 8
    (process,) = cores.of("process")
    assert (process["device"], process["simulated_cores"]) == ("CPU", 8)
    metrics = (rundir.processes(cores.run_dir)[0] / "metrics.txt").read_text()
    assert "Counter: UncachedCompile\n  Value: 3\n" in metrics
    assert not cores.of("hook-off")
    assert not cores.of("note")


# -- one device, without a main function for each core --------------------------------------------
@pytest.mark.parametrize("simulate", [(), ("--simulate-cores", "4")])
def test_reads_of_a_program_on_one_device_are_measured(tmp_path, simulate):
    """Its reads cut the step: one graph at the read, one for the rest of the step."""
    (tmp_path / "cut.py").write_text(programs.CUT)
    words = ("-o", "run", "--output-file", "r.txt", "--", sys.executable, "cut.py")
    done = profile(tmp_path, *simulate, *words, PJRT_DEVICE="CPU")
    assert done.returncode == 0, done.stderr
    run = Run(done, tmp_path / "run")
    read, step = (programs.line(programs.CUT, mark) for mark in ("READ", "STEP"))
    found = [(run.line(r["site"]), r["trigger"], r["cause"]["kind"]) for r in run.of("compilation")]
    assert found == [(read, "read", "host-sync-split"), (step, "step", "first-graph")]
    read_row = next(row for row in run.of("step") if row["first"] == 1)["syncs"]
    assert [(run.line(site), what, count, new) for site, what, count, _, new, _ in read_row] == [
        (read, "bool", 1, 1)
    ]
    kinds = collections.Counter()
    for row in run.of("step"):
        for entry in row["syncs"]:
            kinds.update(entry[5])
    # It compiles once, and then ends and runs the known graph each time.
    assert +kinds == {"compiled": 1, "cut": 3}
    # What the read waited is what the steps say, its compilation left out: that is XLA210's.
    waited = sum(entry[3] for row in run.of("step") for entry in row["syncs"])
    assert waited == pytest.approx(
        sum(row["parts"]["host_sync"] for row in run.of("step")), abs=1e-4
    )
    first = next(row for row in run.of("step") if row["first"] == 1)
    compiled = sum(row["seconds"] for row in run.of("compilation"))
    assert first["parts"]["compile"] == pytest.approx(compiled, abs=1e-6)
    metrics = (rundir.processes(tmp_path / "run")[0] / "metrics.txt").read_text()
    assert "Counter: UncachedCompile\n  Value: 2\n" in metrics


# -- one device, and the ways a run can end ------------------------------------------------------
@pytest.mark.parametrize(
    ("end", "code", "last_row"),
    [("", 0, "end"), ("kill", 137, "step"), ("abort", 134, "step"), ("leave", 3, "exit"),
     ("raise", 1, "end")],
)  # fmt: skip
def test_what_was_flushed_is_kept_however_the_run_ends(tmp_path, end, code, last_row):
    (tmp_path / "one.py").write_text(programs.ONE)
    words = ("-o", "run", "--output-format", "json", "--output-file", "r.json", "--")
    done = profile(tmp_path, *words, sys.executable, "one.py", "5", end, PJRT_DEVICE="CPU")
    assert done.returncode == code, done.stderr
    run = Run(done, tmp_path / "run")
    steps = [(row["first"], row["last"]) for row in run.of("step") if row["first"] is not None]
    assert steps == [(step, step) for step in range(1, 6)]
    assert run.rows[-1]["e"] == last_row
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["steps"] == 5
    manifest = rundir.read_manifest(tmp_path / "run")
    assert manifest.exit_code == code
    assert manifest.complete == (code == 0)
    if end == "abort":
        stacks = (rundir.processes(tmp_path / "run")[0] / "stacks.txt").read_text()
        assert "one.py" in stacks
    if end == "raise":
        (error,) = run.of("error")
        assert (error["type"], error["message"]) == ("ValueError", "the loss is gone")
        assert run.sites[error["site"]][0][2] == "main"
        assert done.stderr.count("ValueError: the loss is gone") == 1


def test_a_full_disk_ends_the_record_and_not_the_program(tmp_path):
    """A limit on the size of files stands in for the disk: each write beyond it fails."""
    (tmp_path / "one.py").write_text(programs.ONE)
    words = ("-o", "run", "--output-format", "json", "--output-file", "r.json", "--")
    limited = ("sh", "-c", f"ulimit -f 16; exec {sys.executable} one.py 60")
    done = profile(tmp_path, *words, *limited, PJRT_DEVICE="CPU", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n"
    events = rundir.processes(tmp_path / "run")[0] / "events.jsonl"
    assert 4000 < events.stat().st_size <= 16 * 1024
    steps = json.loads((tmp_path / "r.json").read_text())["summary"]["steps"]
    assert 5 < steps < 60


def test_no_failing_hook_reaches_the_program(cores, tmp_path):
    """Every hook of the recorder and of the meter breaks; the program does what it does without."""
    breaking = """\
import sys
import torch_xla
def broken(*args, **kwargs):
    raise ZeroDivisionError("broken on purpose")
account = sys.modules["_xladoctor.agent.account"].Account
sites = sys.modules["_xladoctor.agent.sites"].Sites
measure = sys.modules["_xladoctor.agent.measure"]
sites.here = account.enter = account.add_upload = measure._compilations = broken
"""
    (tmp_path / "train.py").write_text(breaking + programs.CORES)
    broken = profile(
        tmp_path, "--simulate-cores", "2", "-o", "broken", "--output-file", "r.txt", "--",
        sys.executable, "train.py",
    )  # fmt: skip
    assert broken.returncode == 0, broken.stderr
    # All cores see the same data, so the loss does not depend on how many there are.
    assert broken.stdout == cores.done.stdout
    assert _foreign(broken) == []
    off = {row["hook"] for row in Run(broken, tmp_path / "broken").of("hook-off")}
    assert {"launch:_launch", "launch:around", "read:_read", "upload:_upload"} <= off
