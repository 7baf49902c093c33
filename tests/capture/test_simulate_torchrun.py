"""Launchers of one process for each core: refused before a process trains apart from the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.capture.simulate.environment import refusal

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import torch_xla

def main(index):
    open("trained", "w").close()

if __name__ == "__main__":
    torch_xla.launch(main)
"""


def profile(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "4", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.xla
@pytest.mark.parametrize("processes", [1, 2])
def test_torchrun_behind_a_script_of_the_shell(tmp_path, processes):
    (tmp_path / "train.py").write_text(TRAIN)
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone"
    (tmp_path / "start.sh").write_text(f"{torchrun} --nproc-per-node={processes} train.py\n")
    done = profile(tmp_path, "--", "sh", "start.sh")
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("xladoctor: --simulate-cores 4 does not run here: torchrun has started ")
    assert "start the program with python" in last
    assert not (tmp_path / "trained").exists()


@pytest.mark.xla
def test_one_process_of_several_by_its_environment(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = profile(tmp_path, "train.py", WORLD_SIZE="2", RANK="0")
    assert done.returncode == 2
    assert "WORLD_SIZE=2 says that this is one process of 2" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "trained").exists()


def test_what_is_one_process_is_not_refused():
    assert refusal({}, 4) is None
    assert refusal({"WORLD_SIZE": "1", "RANK": "0"}, 4) is None
    assert refusal({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}, 1) is None
    assert refusal({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}, 4) is not None
    assert refusal({"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}, 4) is not None
