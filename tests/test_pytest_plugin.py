"""``@pytest.mark.xla_limits`` in a real pytest, of tests that run on torch_xla."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

TESTS = """\
import pytest


def train(sizes, read=False):
    import torch, torch_xla

    device = torch_xla.device()
    w = torch.ones(4, device=device).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1)
    for size in sizes:
        optimizer.zero_grad()
        loss = (w * torch.ones(size, 4).to(device)).sum()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        if read:
            loss.item()
            torch.nonzero(w)
    return 1


@pytest.mark.xla_limits(compilations_after_warmup=0, fallbacks=0, host_syncs=0)
def test_sound():
    assert train([8] * 6)


@pytest.mark.xla_limits(compilations_after_warmup=0, compilations=100)
def test_recompiles():
    train([7] * 4 + [5])


@pytest.mark.xla_limits(fallbacks=0, host_syncs_per_step=0.5)
class TestReads:
    def test_reads(self):
        train([3] * 5, read=True)


@pytest.mark.xla_limits(compilations=0)
def test_wrong_by_itself():
    assert train([2] * 2) == 2, "its own words"


@pytest.mark.xla_limits(compilation=0)
def test_no_such_limit():
    pass


@pytest.mark.xla_limits(0)
def test_no_name():
    pass


@pytest.mark.xla_limits(fallbacks=-1)
def test_no_number():
    pass


def test_without_limits():
    assert not any(name.startswith("xladoctor.") and "plugin" not in name for name in LOADED)


import sys

LOADED = set(sys.modules)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xladoctor.pytest_plugin", "-p", "no:cacheprovider",
         "--strict-markers", "-q", "-ra", *words],
        env={**os.environ, "PYTHONPATH": path, "PJRT_DEVICE": "CPU", "COLUMNS": "400",
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.xla
def test_limits_fail_the_tests_that_exceed_them_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("torch_xla")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_train.py").write_text(TESTS)
    done = run(tmp_path)
    failed = dict(re.findall(r"^FAILED test_train\.py::(\S+) - (.*)$", done.stdout, re.MULTILINE))
    assert set(failed) == {
        "test_recompiles", "TestReads::test_reads", "test_wrong_by_itself", "test_no_such_limit",
        "test_no_name", "test_no_number",
    }, done.stdout  # fmt: skip
    late = "compilations_after_warmup: 1 compilations of one core after warm-up, at most 0 allowed"
    assert late in failed["test_recompiles"]
    assert "fallbacks: 5 operations on the CPU, at most 0 allowed" in done.stdout
    assert re.search(r"host_syncs_per_step: \d+ host syncs per step and core, at most 0.5 allowed",
                     done.stdout)  # fmt: skip
    assert re.search(r"test_train\.py:\d+: XLA\d{3} ", done.stdout)
    assert "its own words" in failed["test_wrong_by_itself"]
    assert "there are compilations, compilations_after_warmup" in failed["test_no_such_limit"]
    assert "takes limits by name" in failed["test_no_name"]
    assert "must be a number, 0 or more" in failed["test_no_number"]
    # The run of a test is kept, and can be asked.
    (folder,) = (tmp_path / ".xladoctor" / "pytest").glob("*test_recompiles*")
    assert (folder / "manifest.json").is_file()


def test_the_marker_is_known_and_the_plugin_imports_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert "@pytest.mark.xla_limits(compilations=N, " in run(tmp_path, "--markers").stdout
    (tmp_path / "test_train.py").write_text(TESTS)
    done = run(tmp_path, "-k", "without")
    assert "1 passed" in done.stdout, done.stdout


def test_without_torch_xla_a_marked_test_fails_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "torch_xla.py").write_text("raise ImportError('not here')\n")
    (tmp_path / "test_train.py").write_text(TESTS)
    done = run(tmp_path, "-k", "sound", "-o", "pythonpath=.")
    assert re.search(r"FAILED test_train\.py::test_sound - .*xla_limits: ", done.stdout), (
        done.stdout
    )
    assert "Traceback" not in done.stdout


def test_an_installed_xladoctor_brings_the_plugin() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\nxladoctor = "xladoctor.pytest_plugin"\n' in text
