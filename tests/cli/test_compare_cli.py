"""``xladoctor compare``: recorded runs and pasted reports, the gate, bad input."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.invented import InventedRun
from tests.store.generate import Large, write
from xladoctor.cli.app import main

SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs" / "ct_slices" / "recorded"
FOUND, TREATED = str(SAMPLES / "runnable"), str(SAMPLES / "treated")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def pasted(path: Path, steps: int, nonzero: int, compiled: int = 4) -> str:
    path.write_text(
        f"Metric: CompileTime\n  TotalSamples: {compiled}\n  Accumulator: 02s000ms000.000us\n"
        "  Percentiles: 1%=001ms; 50%=001ms; 99%=001ms\n"
        f"Counter: MarkStep\n  Value: {steps}\nCounter: aten::nonzero\n  Value: {nonzero}\n"
        "Counter: xla::add\n  Value: 9\n"
    )
    return str(path)


def as_json(capsys, *args: str) -> tuple[int, dict]:
    code = main(["compare", *args, "--output-format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_two_recorded_runs(here, capsys):
    code, data = as_json(capsys, FOUND, TREATED)
    assert code == 0
    figures = {item["name"]: item for item in data["figures"]}
    # The seconds of a step are those of the machine that has recorded it.
    counts = {name: item["verdict"] for name, item in figures.items() if name != "step_seconds"}
    assert counts == dict.fromkeys(counts, "better")
    assert "step_seconds" in figures
    # 25 graphs and 336 syncs in 14 steps of 8 cores; treated: 8 graphs (two of a rendezvous) and 48
    # syncs in 16.
    assert (figures["compilations"]["before"], figures["compilations"]["after"]) == (25, 8)
    assert (figures["host_syncs"]["before"], figures["host_syncs"]["after"]) == (3.0, 0.375)
    assert figures["compilations"]["percent"] == pytest.approx(-68)
    gone = {item["code"]: item for item in data["findings"] if item["verdict"] == "gone"}
    assert set(gone) == {"XLA101", "XLA202", "XLA203", "XLA401", "XLA501"}
    assert gone["XLA501"]["before"]["count"] == 224
    assert gone["XLA501"]["after"] == {"findings": 0, "count": None, "seconds": None}
    assert data["gate"] is None
    assert (data["before"]["steps"], data["after"]["steps"]) == (14, 16)
    assert "per step" in data["notes"][0]


def test_the_text_fits_80_columns_and_begins_with_the_answer(here, capsys):
    assert main(["compare", FOUND, TREATED]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Better: compilations per core")
    assert "gone  XLA101 host-sync-in-step  320x" in out
    sources = [line for line in out.splitlines() if "recorded" in line]
    assert len(sources) >= 2
    assert max(len(line) for line in out.splitlines() if line not in sources) <= 80


def test_the_gate(here, capsys):
    assert main(["compare", FOUND, TREATED, "--fail-if-worse", "0"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["compare", TREATED, FOUND, "--fail-if-worse", "10"]) == 1
    err = capsys.readouterr().err
    assert "xladoctor: worse: compilations per core: 25 instead of 8 (+212%)\n" in err
    assert "xladoctor: worse: CPU fallbacks per step: 2 instead of 0\n" in err
    assert "typical step" not in err  # seconds of simulated cores prove nothing
    code, data = as_json(capsys, TREATED, FOUND, "--fail-if-worse", "400")
    # What was 0 before has no percentage: more of it is always more than allowed.
    assert code == 1
    assert data["gate"]["passed"] is False
    assert all("compilations per core" not in text for text in data["gate"]["broken"])


def test_a_run_equals_itself(here, capsys):
    code, data = as_json(capsys, FOUND, FOUND, "--fail-if-worse", "0")
    assert code == 0
    assert {item["verdict"] for item in data["figures"]} == {"same"}
    assert {item["verdict"] for item in data["findings"]} == {"still"}


def test_pasted_reports_are_compared_per_step(here, capsys):
    before = pasted(here / "a.txt", steps=100, nonzero=200)
    after = pasted(here / "b.txt", steps=50, nonzero=100, compiled=5)
    code, data = as_json(capsys, before, after)
    assert code == 0
    figures = {item["name"]: item for item in data["figures"]}
    assert (figures["fallbacks"]["before"], figures["fallbacks"]["verdict"]) == (2.0, "same")
    assert figures["compilations"]["verdict"] == "worse"
    assert figures["step_seconds"]["before"] is None


def test_seconds_of_a_device_are_judged(here, capsys):
    for name, seconds in (("a", 0.5), ("b", 0.9)):
        run = InventedRun(simulated_cores=None)
        run.steps(12, execute=seconds)
        run.end()
        run.write(here / name)
    assert main(["compare", "a", "b", "--fail-if-worse", "50"]) == 1
    assert capsys.readouterr().err == (
        "xladoctor: worse: typical step: 0.9 s instead of 0.5 s (+80%)\n"
    )
    assert main(["compare", "a", "b", "--fail-if-worse", "90"]) == 0


def test_a_new_error_breaks_the_gate_whatever_the_figures(here, capsys):
    for name, ends in (("a", False), ("b", True)):
        run = InventedRun()
        run.steps(10)
        if ends:
            run.rows.append(
                {"e": "error", "core": 1, "step": 10, "type": "ValueError", "message": "boom",
                 "traceback": "ValueError: boom", "site": None}
            )  # fmt: skip
        run.end()
        run.write(here / name)
    assert main(["compare", "a", "b", "--fail-if-worse", "50"]) == 1
    assert "worse: XLA411 core-failed is new" in capsys.readouterr().err


def test_what_was_not_measured_cannot_be_judged(here, capsys):
    (here / "b.txt").write_text("Counter: MarkStep\n  Value: 100\n")
    before = pasted(here / "a.txt", steps=100, nonzero=200)
    assert main(["compare", before, "b.txt", "--fail-if-worse", "5"]) == 2
    assert "not judged: compilations per core could not be measured" in capsys.readouterr().err


def test_standard_input_and_an_output_file(here, capsys, monkeypatch):
    text = Path(pasted(here / "a.txt", steps=10, nonzero=1)).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text))))
    assert main(["compare", "a.txt", "-", "--output-format", "markdown", "-o", "out/c.md"]) == 0
    assert capsys.readouterr().out == ""
    written = (here / "out" / "c.md").read_text()
    assert written.startswith("## xladoctor: Nothing that was measured in both has changed.\n")
    assert "| compilations per core | 4 | 4 | same |" in written


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["a.txt", "missing"], "missing"),
        (["-", "-"], "standard input (-) is given twice: it can be read only once"),
        (["a.txt"], "Missing argument 'AFTER'"),
        (["a.txt", "a.txt", "--fail-if-worse", "-1"], "not in the range x>=0"),
        (["a.txt", "empty.txt"], "empty.txt"),
    ],
)
def test_bad_input_is_one_sentence(here, capsys, args, sentence):
    pasted(here / "a.txt", steps=10, nonzero=1)
    (here / "empty.txt").write_text("")
    assert main(["compare", *args]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err


def test_two_runs_of_many_hosts(tmp_path, capsys):
    """The straggler of the first is gone, and with it what the others have waited for it."""
    for name, late in (("monday", {1: 0.3}), ("tuesday", {})):
        write(Large(10, 60, late), tmp_path / name)
    assert main(["compare", str(tmp_path / "monday"), f"file://{tmp_path}/tuesday"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Better: typical step, XLA414 gone."
    assert len(lines) < 40
    (waiting,) = [line for line in lines if "waiting for other cores" in line]
    before, after = re.findall(r"(\d+) ms", waiting)
    assert int(before) > int(after) + 250
    assert main(["compare", str(tmp_path / "monday"), str(tmp_path / "no-such-run")]) == 2
