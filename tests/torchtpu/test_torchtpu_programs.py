"""Programs for TorchTPU as ``xladoctor profile`` records them, run by TorchTPU itself.

They need a Python 3.12 with torch_tpu, and a library that its runtime can drive, a TPU's or a PJRT
plug-in for CPUs: ``make torchtpu TORCH_TPU_PYTHON=... TPU_LIBRARY_PATH=...``. Elsewhere they are
left out; ``test_torchtpu_recorded.py`` reads what one of them has recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = os.environ.get("TORCH_TPU_PYTHON")
PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.skipif(not PYTHON, reason="TORCH_TPU_PYTHON names no Python with it")


def profile(tmp_path, name, *options):
    """Exit code, report and the command's standard error."""
    words = [sys.executable, "-m", "xladoctor", "profile", "-o", "run", "--output-format", "json"]
    words += ["--output-file", "report.json", *options, "--", PYTHON, str(PROGRAMS / name)]
    environ = {"TPU_SKIP_MDS_QUERY": "1", **os.environ}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    report = tmp_path / "report.json"
    return done, json.loads(report.read_text()) if report.exists() else None


def found(report):
    return {item["code"]: item for item in report["findings"]}


def test_a_short_last_batch_is_told_at_its_loader(tmp_path):
    done, report = profile(tmp_path, "short_last_batch.py")
    assert done.returncode == 0, done.stderr[-2000:]
    short = found(report)["XLA203"]
    assert short["locations"][0]["row"] == 14
    assert "13 operations" in short["message"]
    steps = {item["step"] for item in report["compilations"] if item["after_warmup"]}
    assert steps == {11}
    assert report["summary"]["host_syncs"] == 22
    assert sum(report["summary"]["fallbacks"].values()) == 22


def test_what_is_deferred_is_of_the_steps_since_the_last_wait(tmp_path):
    done, report = profile(tmp_path, "deferred.py")
    assert done.returncode == 0, done.stderr[-2000:]
    late = [item["step"] for item in report["compilations"] if item["after_warmup"]]
    early = [item["step"] for item in report["compilations"] if not item["after_warmup"]]
    assert (set(late), set(early)) == ({12}, {4})


def test_a_healthy_program_compiles_nothing_again(tmp_path):
    done, report = profile(tmp_path, "healthy.py")
    assert done.returncode == 0, done.stderr[-2000:]
    assert report["summary"]["compilations_after_warmup"] == 0
    assert report["summary"]["compilations"] > 0
    assert report["summary"]["steps"] == 12
    assert not {"XLA203", "XLA210", "XLA501"} & set(found(report))


def test_an_evaluation_that_is_new_is_no_recompilation(tmp_path):
    done, report = profile(tmp_path, "evaluated.py")
    assert done.returncode == 0, done.stderr[-2000:]
    assert report["summary"]["compilations_after_warmup"] == 0
    assert "XLA210" not in found(report)


def test_an_error_of_the_program_stays_its_own(tmp_path):
    done, report = profile(tmp_path, "raising.py")
    assert done.returncode == 1
    assert "ValueError: as it was meant to" in done.stderr
    assert report["summary"]["steps"] == 5


def test_simulated_cores_are_refused_in_a_sentence(tmp_path):
    done, report = profile(tmp_path, "healthy.py", "--simulate-cores", "2")
    assert (done.returncode, report) == (2, None)
    assert "a program for TorchTPU is profiled as it is" in done.stderr
