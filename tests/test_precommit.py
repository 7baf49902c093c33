"""The hooks, run by the real pre-commit from a fresh repository."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FAULTY = """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

device = xm.xla_device()


def train(model, loader, optimizer, criterion):
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = criterion(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())
"""

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
    pytest.mark.skipif(
        importlib.util.find_spec("pre_commit") is None, reason="needs the dev extra"
    ),
]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def hook_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the files of this checkout as they are now, committed or not."""
    folder = tmp_path_factory.mktemp("hook")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, folder)
    for name in ("xladoctor", "rules"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_rules")
        )
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "State under test")
    return folder


@pytest.fixture(scope="module")
def pre_commit_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps the environments it makes for hooks."""
    return tmp_path_factory.mktemp("pre-commit-home")


@pytest.fixture
def project(tmp_path: Path, hook_repository: Path) -> Path:
    """A fresh repository that uses the lint hook."""
    git(tmp_path, "init", "--quiet")
    revision = git(hook_repository, "rev-parse", "HEAD")
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hook_repository}\n  rev: {revision}\n  hooks:\n  - id: xladoctor-lint\n"
    )
    git(tmp_path, "add", "--all")
    return tmp_path


def run_hooks(project: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
        cwd=project,
        env={**os.environ, "PRE_COMMIT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_it_finds_a_fault_and_stops_the_commit(project: Path, pre_commit_home: Path) -> None:
    (project / "train.py").write_text(FAULTY)
    git(project, "add", "train.py")
    done = run_hooks(project, pre_commit_home)
    row = FAULTY[: FAULTY.index("loss.item")].count("\n") + 1
    assert done.returncode == 1, done.stdout + done.stderr
    assert "XLA101" in done.stdout
    assert f"train.py:{row}:" in done.stdout


def test_it_passes_a_file_without_faults(project: Path, pre_commit_home: Path) -> None:
    (project / "train.py").write_text("print('no XLA here')\n")
    git(project, "add", "train.py")
    done = run_hooks(project, pre_commit_home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


def test_it_passes_when_there_is_nothing_to_look_at(project: Path, pre_commit_home: Path) -> None:
    done = run_hooks(project, pre_commit_home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no files to check" in done.stdout


def test_its_environment_has_no_torch(project: Path, pre_commit_home: Path) -> None:
    run_hooks(project, pre_commit_home)
    installed = {path.name for path in pre_commit_home.rglob("site-packages/*")}
    assert "libcst" in installed
    assert not installed & {"torch", "torch_xla", "pandas", "numpy"}
