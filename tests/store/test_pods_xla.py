"""Two hosts train on simulated cores and write to a storage that speaks S3; one is cut off."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xladoctor import diagnosis
from xladoctor.store import runs
from xladoctor.store.locations import located

pytestmark = pytest.mark.xla

PROGRAM = """
import sys
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index):
    device = torch_xla.device()
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4, device=device)).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


if __name__ == "__main__":
    torch_xla.launch(main)
"""


def profile(place, folder, host, steps, **more):
    environ = os.environ | {
        "PYTHONPATH": str(Path.cwd()), "SLURM_JOB_ID": "77", "SLURM_NODEID": str(host),
        "SLURM_NNODES": "2", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    }  # fmt: skip
    command = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", "2", "-o",
               f"{place}/{{run}}", "--upload-every", "1", "--", sys.executable, "train.py",
               str(steps)]  # fmt: skip
    (folder / "train.py").write_text(PROGRAM)
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True, **more,
    )  # fmt: skip


@pytest.mark.slow
def test_hosts_on_a_storage_and_one_that_is_preempted(bucket, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first = profile(bucket, folders[0], 0, 20)
    second = profile(bucket, folders[1], 1, 10_000_000)  # goes on until it is cut off
    place = located(f"{bucket}/77")
    try:
        out, _ = first.communicate(timeout=240)
        assert first.returncode == 0, out
        assert "host 0 of 2, as SLURM says" in out
        assert f"xladoctor report {bucket}/77" in out
        deadline = time.monotonic() + 240
        while not any("hosts/1/" in name and name.endswith(".jsonl") for name in place.sizes()):
            assert time.monotonic() < deadline, "nothing was flushed"
            time.sleep(1)
        time.sleep(3)  # some more of it goes out
    finally:
        os.killpg(second.pid, signal.SIGKILL)  # preempted: nobody says goodbye
        kill_children(folders[1])
        second.communicate()
    check_one_that_is_cut(bucket, place)
    again = profile(bucket, folders[1], 1, 6)  # its launcher has started it anew
    out, _ = again.communicate(timeout=240)
    assert again.returncode == 0, out
    check_one_that_came_back(bucket, place)


def check_one_that_came_back(bucket, place):
    before = {name for name in place.sizes("hosts/1") if name.endswith("part.json")}
    assert len(before) == 2
    found = diagnosis.diagnose(runs.load([f"{bucket}/77"]))
    assert found.summary.cores == 4
    assert "host 1: it was started 2 times: its steps are counted on" in found.notes
    for core in (one for one in found.cores if one.host == "1"):
        assert core.steps > 6
        rows = [row for row in found.timeline.stretches if row.core == core.core]
        firsts = [row.first for row in rows if row.first is not None]
        assert firsts[-6:] == list(range(core.steps - 5, core.steps + 1))


def check_one_that_is_cut(bucket, place):
    found = diagnosis.diagnose(runs.load([f"{bucket}/77"]))
    assert found.summary.cores == 4
    assert {core.host for core in found.cores} == {"0", "1"}
    steps = {core.host: core.steps for core in found.cores}
    assert steps["0"] == 20
    assert steps["1"] > 20
    assert any(note.startswith("host 1: the run was cut short") for note in found.notes)
    facts = [json.loads(place.read(name)) for name in place.sizes() if name.endswith("part.json")]
    said = {(one["host"], one["run"], one["hosts"]) for one in facts}
    assert said == {("0", "77", 2), ("1", "77", 2)}
    whole = b"".join(place.read(name) for name in place.sizes())
    assert b"the-secret-of-the-test" not in whole


def kill_children(folder):
    """The command has a group of its own: end it by the ids that the run directory has."""
    for process in folder.glob(".xladoctor/runs/*/p*-*"):
        pid = int(process.name[1:].partition("-")[0])
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
