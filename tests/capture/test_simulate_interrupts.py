"""Runs on simulated cores that are ended from outside: the report comes, and nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import simulated

from xladoctor.capture import rundir

pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[2]
#: How long (seconds) to wait for what has to come; a busy machine is slow.
PATIENCE = 300

PROGRAM = """
import os, signal, sys
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index, orphan):
    device = torch_xla.device()
    model = torch.nn.Linear(4, 2).to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(10**6):
        optimizer.zero_grad()
        model(torch.ones(4, 4).to(device)).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        if step == 3 and index == 0:
            with open("new", "w") as file:
                file.write(f"{os.getpid()} {os.getpgid(0)}")
            os.rename("new", "ready")
            if orphan:
                os.kill(os.getppid(), signal.SIGKILL)


if __name__ == "__main__":
    torch_xla.launch(main, args=(len(sys.argv) > 1,))
"""


def wait_for(check):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if check():
            return
        time.sleep(0.1)
    raise AssertionError("it never came")


def gone(send, number):
    """Whether no process of that number is left; a dead one that waits for its parent is none."""
    try:
        send(number, 0)
    except ProcessLookupError:
        return True
    states = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    mine = [words for words in map(str.split, states.splitlines()) if str(number) in words[:2]]
    return all(words[2].startswith("Z") for words in mine)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_ends_all_processes_and_the_report_is_written(tmp_path, number, code):
    (tmp_path / "train.py").write_text(PROGRAM)
    base = {key: value for key, value in os.environ.items() if not key.startswith("PJRT")}
    words = ["profile", "--simulate-cores", "3", "-o", "run", "--output-format", "json",
             "--output-file", "report.json", "--", sys.executable, "train.py"]  # fmt: skip
    started = subprocess.Popen(
        [sys.executable, "-m", "xladoctor", *words],
        env={**base, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(lambda: (tmp_path / "ready").exists())
        child, group = map(int, (tmp_path / "ready").read_text().split())
        started.send_signal(number)
        _, stderr = started.communicate(timeout=PATIENCE)
    finally:
        started.kill()
    assert started.returncode == code, stderr
    # The launcher has waited for the whole group before it wrote the report.
    assert gone(os.killpg, group)
    assert gone(os.kill, child)
    assert "terminate called" not in stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["summary"]["cores"] == 3
    assert report["summary"]["steps"] >= 4
    assert "XLA411" not in [found["code"] for found in report["findings"]]
    manifest = rundir.read_manifest(tmp_path / "run")
    assert (manifest.exit_code, manifest.complete) == (code, False)
    rows = [row for folder in rundir.processes(tmp_path / "run") for row in rundir.rows(folder)]
    ended = sorted(row["core"] for row in rows if row["e"] == "core-end")
    # Ctrl-C gives the program time to end; SIGTERM ends it where it stands, mostly.
    assert ended == [0, 1, 2] or (number == signal.SIGTERM and set(ended) <= {0, 1, 2})


def test_cores_do_not_outlive_the_program_that_started_them(tmp_path):
    """Without a launcher: as at a terminal, where it must not end the whole group."""
    done = simulated.run(tmp_path, 2, PROGRAM, "orphan", timeout=PATIENCE)
    assert done.code == -signal.SIGKILL
    child = int((tmp_path / "ready").read_text().split()[0])
    wait_for(lambda: gone(os.kill, child))
    assert done.kinds in ([], ["process-ended"])
