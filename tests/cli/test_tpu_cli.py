"""``--tpu`` on the command line: what cannot work is one sentence and costs only its part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.invented import InventedRun
from tests.tpu import graphs
from xladoctor.cli import gates
from xladoctor.cli.app import main
from xladoctor.cli.sizes import parse
from xladoctor.costs import StepCost, TargetCost
from xladoctor.errors import UsageError
from xladoctor.results import Report, Summary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    invented = InventedRun()
    invented.steps(5)
    invented.end()
    return invented.write(tmp_path / "run")


@pytest.mark.parametrize("command", ["report", "profile", "compare"])
def test_a_target_that_does_not_exist_is_refused_before_anything_is_done(
    run: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words = {
        "report": ["report", "run", "--tpu", "v3-9"],
        "profile": ["profile", "--tpu", "v3-9", "--", "true"],
        "compare": ["compare", "run", "run", "--tpu", "v3-9"],
    }[command]
    assert main(words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "v3-9" in err
    assert "v5p-{8,16" in err
    assert err.count("\n") == 1


def test_without_the_extra_the_report_is_there_and_says_how_to_get_it(
    run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jaxlib")
    graphs.hide(monkeypatch, "libtpu")
    written = graphs.run(run.parent / "with", graphs.product(128, 128, 128))
    assert main(["report", str(written), "--tpu", "v3-8", "--output-format", "json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert report["tpu"] is None
    assert any('pip install "xladoctor[tpu]"' in note for note in report["notes"])
    assert 'pip install "xladoctor[tpu]"' in err


def test_without_tpu_it_is_null(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "run", "--output-format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["tpu"] is None


def test_a_run_without_graphs_is_told(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "run", "--tpu", "v3-8"]) == 0
    out, err = capfd.readouterr()
    assert "Verdict" in out
    assert "has no graphs for the TPU compiler" in err
    assert "Traceback" not in err


def test_pasted_text_is_told(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run.parent / "log").write_text("Counter: MarkStep\n  Value: 10\n")
    assert main(["report", "log", "--tpu", "v3-8"]) == 0
    assert "pasted text holds no graphs" in capfd.readouterr().out


@pytest.mark.parametrize("limit", [["--max-hbm", "1GiB"], ["--max-tpu-step-ms", "1"]])
def test_limits_need_a_target(
    run: Path, capfd: pytest.CaptureFixture[str], limit: list[str]
) -> None:
    assert main(["profile", *limit, "--", "true"]) == 2
    assert "need --tpu" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GiB", 2**34), ("14.5G", 29 * 2**29), ("16GB", 16_000_000_000), ("123", 123)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse(text, "--max-hbm") == size


@pytest.mark.parametrize("text", ["", "much", "16 XB", "-1", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-hbm takes bytes"):
        parse(text, "--max-hbm")


def held(step: StepCost | None, **limits: float) -> tuple[int, int]:
    cost = None if step is None else (TargetCost("v3-8", "v3:2x2x1", "libtpu", 8, 1e9, step),)
    report = Report(Summary("", "", ""), tpu=cost)
    gate = gates.judge(gates.Gates(**limits), report)  # type: ignore[arg-type]
    return len(gate.broken), len(gate.unknown)


def test_limits_are_held_against_each_target() -> None:
    step = StepCost(device_seconds=0.002, memory_bytes=2**30)
    assert held(step, max_tpu_step_ms=1.0) == (1, 0)
    assert held(step, max_tpu_step_ms=3.0) == (0, 0)
    assert held(step, max_hbm=2**29) == (1, 0)
    assert held(step, max_hbm=2**31) == (0, 0)
    assert held(StepCost(), max_hbm=2**31) == (0, 1)
    assert held(None, max_tpu_step_ms=1.0, max_hbm=1) == (0, 2)
