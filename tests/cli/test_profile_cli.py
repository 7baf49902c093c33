"""The command line around the run; no torch_xla needed (invented packages stand in for it)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.cli import gates
from xladoctor.cli.app import main
from xladoctor.errors import UsageError
from xladoctor.findings import Location
from xladoctor.results import Cause, Compilation, Report, Summary

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PJRT_DEVICE", raising=False)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--simulate-cores", "0", "--", "true"], "a whole number from 1 to 32, not '0'"),
        (["--simulate-cores", "33", "--", "true"], "a whole number from 1 to 32, not '33'"),
        (["--simulate-cores", "x", "--", "true"], "a whole number from 1 to 32, not 'x'"),
        ([], "no command given"),
        (["--"], "no command given"),
        (["--", "no-such-command-here"], "no such command"),
        (["--", sys.executable, "gone.py"], "gone.py: there is no such file"),
        (["gone.py"], "gone.py: there is no such file"),
        (["--budget", "gone.toml", "--", "true"], "the budget gone.toml cannot be read"),
        (["--html", "no/such/folder.html", "--", "true"], "cannot write no/such/folder.html"),
        (["-o", "file", "--", "true"], "not a folder"),
        (["-o", "full", "--", "true"], "--force"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_nothing_is_started(capfd, argv, says):
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full/thing").write_text("")
    assert main(["profile", *argv]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not Path(".xladoctor").exists()


@pytest.mark.parametrize("argv", [["--max-compilations", "-1"], ["--hang-timeout", "0"],
                                  ["--output-format", "nonsense"], ["--nonsense"]])  # fmt: skip
def test_flags_out_of_range(capfd, argv):
    assert main(["profile", *argv, "--", "true"]) == 2
    assert "Traceback" not in capfd.readouterr().err


def test_tpu_and_simulation_contradict_each_other(capfd, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    assert main(["profile", "--simulate-cores", "8", "--", sys.executable, "-c", ""]) == 2
    err = capfd.readouterr().err
    assert "PJRT_DEVICE=TPU is set" in err
    assert err.count("\n") == 1


def _installed(folder: Path, **versions: str) -> str:
    """Package records only: what importlib.metadata sees."""
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def test_torch_and_torch_xla_that_do_not_match(capfd, monkeypatch, tmp_path):
    place = _installed(tmp_path / "lib", torch="2.4.0", torch_xla="2.9.0")
    monkeypatch.setenv("PYTHONPATH", place)
    assert main(["profile", "--simulate-cores", "8", "--", sys.executable, "-c", ""]) == 2
    err = capfd.readouterr().err
    assert 'pip install "torch==2.9.*" "torch_xla==2.9.*"' in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(5)", 5), ("import os; os.kill(os.getpid(), 15)", 143)],
)
def test_the_commands_own_exit_code_comes_first(capfd, code, expected):
    assert main(["profile", "--", sys.executable, "-c", code]) == expected
    assert "nothing was recorded" in capfd.readouterr().err


def test_what_the_code_shows_is_told_when_the_command_fails_at_once(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(
        "import torch_xla.distributed.xla_multiprocessing as xmp\n\n\n"
        "def main(index):\n    print(index)\n\n\n"
        'if __name__ == "__main__":\n    xmp.spawn(main, nprocs=8)\n'
    )
    words = ["--", sys.executable, "-c", "import sys; sys.exit(3)", "old.py"]
    assert main(["profile", *words]) == 3
    out, err = capfd.readouterr()
    assert "the command failed before it used an XLA device" in err
    assert "The command failed before it used an XLA device." in out
    assert "XLA404" in out


def test_a_command_without_torch_xla(capfd):
    assert main(["profile", "--", sys.executable, "-c", "print('mine')"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("mine\n")
    assert "Nothing was recorded" in out
    assert "no process of the command used torch_xla" in err
    (run,) = Path(".xladoctor/runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["exit_code"], manifest["complete"]) == (0, True)


def test_limits_cannot_be_judged_without_torch_xla(capfd):
    words = ["--", sys.executable, "-c", ""]
    assert main(["profile", "--max-compilations", "3", *words]) == 2
    assert "nothing was recorded" in capfd.readouterr().err


def test_a_command_without_any_python(capfd):
    assert main(["profile", "--", "true"]) == 2
    assert "nothing was recorded" in capfd.readouterr().err


def test_why_the_agent_could_not_get_in(capfd):
    assert main(["profile", "--", sys.executable, "-I", "-c", ""]) == 2
    assert "python -I ignores PYTHONPATH" in capfd.readouterr().err


def test_an_agent_that_cannot_start_is_said(capfd, monkeypatch, tmp_path):
    for name in ("torch", "torch_xla"):
        (tmp_path / "lib" / name).mkdir(parents=True)
        (tmp_path / "lib" / name / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    assert main(["profile", "--", sys.executable, "-c", "import torch_xla"]) == 2
    assert "the agent could not start in the program" in capfd.readouterr().err


def test_stdin_passes_through():
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", "--", "cat"],
        input=b"\x00\xffbytes",
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"\x00\xffbytes"


# -- limits --------------------------------------------------------------------------------------
def _report(**summary):
    here = Location("train.py", 3)
    return Report(
        Summary("", "", "", **{"cores": 8, "steps": 10, **summary}),
        compilations=(
            Compilation((0, 1), 1, 1.0, "a", here, Cause("first-graph")),
            Compilation((0,), 7, 1.0, "b", here, Cause("unknown")),
            Compilation((1,), 9, 1.0, "c", here, Cause("unknown")),
            Compilation((1,), 10, 1.0, "d", here, Cause("unknown")),
        ),
    )


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        (gates.Gates(max_compilations=3), False),
        (gates.Gates(max_compilations=2), True),
        (gates.Gates(max_compilations_after_step=(1, 2)), False),
        (gates.Gates(max_compilations_after_step=(1, 1)), True),
        (gates.Gates(max_compilations_after_step=(10, 0)), False),
        (gates.Gates(forbid_fallbacks=True), True),
        (gates.Gates(max_syncs_per_step=1.0), False),
        (gates.Gates(max_syncs_per_step=0.9), True),
    ],
)
def test_limits(limits, broken):
    report = _report(compilations=3, fallbacks={"aten::nonzero": 1}, host_syncs=80)
    verdict = gates.judge(limits, report)
    assert bool(verdict.broken) == broken
    assert not verdict.unknown


def test_what_was_not_measured_is_never_taken_for_zero():
    every = gates.Gates(0, (0, 0), forbid_fallbacks=True, max_syncs_per_step=0.0)
    verdict = gates.judge(every, _report())
    assert not verdict.broken
    assert len(verdict.unknown) == 4


def test_budget_file_and_options(tmp_path):
    path = tmp_path / "budget.toml"
    path.write_text(
        "max-compilations = 4\nmax-compilations-after-step = [3, 0]\nforbid-fallbacks = true\n"
    )
    assert gates.read_budget(path).override(gates.Gates(max_compilations=9)) == gates.Gates(
        9, (3, 0), forbid_fallbacks=True
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-compilation = 4", "max-compilation is not a limit"),
        ("max-compilations = 'four'", "whole number"),
        ("max-compilations = true", "whole number"),
        ("max-compilations-after-step = 3", r"\[step, number\]"),
        ("forbid-fallbacks = 1", "true or false"),
        ("max-syncs-per-step = -1", "0 or more"),
        ("= 4", "is not TOML"),
    ],
)
def test_budgets_that_say_something_else(tmp_path, text, says):
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        gates.read_budget(path)
