from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.invented import InventedRun
from xladoctor.cli.app import main

REPORT = "Counter: MarkStep\n  Value: 232\nCounter: aten::_local_scalar_dense\n  Value: 23562\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run_dir(path: Path) -> Path:
    run = InventedRun()
    run.steps(10, syncs=[(52, "item", 1, 0.2, 0)], host_sync=0.2)
    run.end()
    return run.write(path)


def test_a_run_directory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir(here / "run")
    assert main(["report", "run"]) == 0
    out, err = capsys.readouterr()
    assert "XLA101 host-sync-in-step" in out
    assert err == ""
    assert max(len(line) for line in out.splitlines()) <= 80


def test_json_of_a_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "m.txt").write_text(REPORT)
    assert main(["report", "m.txt", "--output-format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["summary"]["steps"] == 232
    assert data["metrics"][0]["counters"]["aten::_local_scalar_dense"] == 23562


def test_last_is_the_newest_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for age, name in ((100, "old"), (50, "new"), (200, "older")):
        path = run_dir(here / ".xladoctor" / "runs" / name)
        manifest = path / "manifest.json"
        os.utime(manifest, (manifest.stat().st_mtime - age,) * 2)
    assert main(["report", "--last", "--output-format", "json"]) == 0
    about = json.loads(capsys.readouterr().out)["about"]
    assert about["Run"] == str(Path(".xladoctor/runs/new"))


def test_last_without_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--last"]) == 2
    assert "there is no run here yet" in capsys.readouterr().err


def test_output_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "m.txt").write_text(REPORT)
    assert main(["report", "m.txt", "--output-format", "html", "--output-file", "out/r.html"]) == 0
    assert capsys.readouterr().out == ""
    assert "<!DOCTYPE html>" in (here / "out" / "r.html").read_text()


def test_the_page_comes_beside_the_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir(here / "run")
    assert main(["report", "run", "--html", "pages/run.html"]) == 0
    page = Path("pages/run.html").read_text(encoding="utf-8")
    assert "XLA101" in page
    assert "<script" in page
    assert "XLA101 host-sync-in-step" in capsys.readouterr().out


def test_a_broken_output_file_is_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "m.txt").write_text(REPORT)
    (here / "file").write_text("")
    assert main(["report", "m.txt", "--output-file", "file/r.html"]) == 2
    assert "file/r.html: this cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["absent"], ["empty.txt"], ["image.png"], ["prose.txt"], ["folder"], ["m.txt", "absent"],
     ["m.txt", "--output-format", "pdf"]],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_code_2(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (here / "m.txt").write_text(REPORT)
    (here / "empty.txt").write_text("")
    (here / "prose.txt").write_text("slow\n")
    (here / "image.png").write_bytes(b"\x89PNG\0")
    (here / "folder").mkdir()
    assert main(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    if "--output-format" not in arguments:
        assert len(err.strip().splitlines()) == 1


def test_standard_input_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "-", "-"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "standard input (-) is given more than once" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_standard_input_and_colour_in_a_pipe(environment: dict[str, str], colored: bool) -> None:
    clean = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "report", "-"],
        input=REPORT.encode(),
        capture_output=True,
        env=clean | environment | {"COLUMNS": "200"},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert b"23,562 reads in 232 steps" in b" ".join(done.stdout.split()).replace(
        "│ ".encode(), b""
    )
    assert (b"\x1b[" in done.stdout) is colored


def test_report_needs_neither_torch_nor_pandas_nor_libcst() -> None:
    code = (
        "import sys; from xladoctor.cli.app import main; main(['report', '-']); "
        "print({'torch', 'torch_xla', 'pandas', 'libcst'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=REPORT.encode(),
        capture_output=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stdout.decode().splitlines()[-1] == "set()"


def _read_by_nobody(here: Path, *words: str) -> tuple[int, str]:
    """Exit code and complaints of a command whose reader has gone, as ``| head`` goes."""
    root = Path(__file__).resolve().parents[2]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "xladoctor", *words],
            cwd=here, env={**os.environ, "PYTHONPATH": str(root)},
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    return done.returncode, done.stderr


def test_a_reader_that_goes_early_is_no_failure_and_costs_no_file(here: Path) -> None:
    run_dir(here / "run")
    assert _read_by_nobody(here, "report", "run") == (0, "")
    assert _read_by_nobody(here, "report", "run", "-o", "r.json") == (0, "")
    assert "Verdict" in (here / "r.json").read_text()
    words = ["profile", "-o", "own", "--html", "r.html", "--", sys.executable, "-c", "exit(3)"]
    code, said = _read_by_nobody(here, *words)
    assert code == 3
    assert "the page is r.html" in said
    assert "Traceback" not in said
    assert (here / "r.html").read_text().rstrip().endswith("</html>")
    assert (here / "own" / "lint.json").exists()


def test_a_reader_that_goes_in_the_middle_of_a_list_is_no_failure(here: Path) -> None:
    (here / "a.py").write_text("import torch_xla.core.xla_model as xm\nprint(xm.get_ordinal())\n")
    assert _read_by_nobody(here, "lint", "a.py") == (141, "")
