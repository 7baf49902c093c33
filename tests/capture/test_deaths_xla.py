"""Real runs in which a core's process dies: verdict and finding say who, how, when and where."""

from __future__ import annotations

import json
import sys

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

CORES = """\
import ctypes
import os
import signal
import sys
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def die(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crash":
        ctypes.string_at(0)  # line CRASH
    if how.startswith("leave"):
        os._exit(int(how[5:]))  # line LEAVE


def main(index, how):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.ones(4, 8).to(device)).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        if step == 5 and xr.global_ordinal() == 1:
            die(how)


if __name__ == "__main__":
    torch_xla.launch(main, args=(sys.argv[1],))
    if sys.argv[1] == "done":
        os._exit(0)
"""
ROWS = {line.rpartition("# line ")[2]: row for row, line in enumerate(CORES.splitlines(), 1)}


def run(folder, how, *, shell=False):
    (folder / "train.py").write_text(CORES)
    words = [sys.executable, "train.py", how]
    if shell:  # which hides how its child ended
        words = ["bash", "-c", f"{' '.join(words)}; true"]
    done = profile(
        folder, "--simulate-cores", "2", "-o", "run", "--output-format", "json",
        "--output-file", "r.json", "--", *words,
    )  # fmt: skip
    report = json.loads((folder / "r.json").read_text())
    findings = [item for item in report["findings"] if item["code"] == "XLA411"]
    return done, report["summary"]["verdict"], findings


@pytest.mark.parametrize(
    "shell",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["itself", "under a shell"],
)
def test_killed(tmp_path, shell):
    done, verdict, [finding] = run(tmp_path, "kill", shell=shell)
    assert done.returncode == (0 if shell else 1)  # the cores' parent says that its pool is broken
    assert "(all 2 cores) was killed (out of memory?)" in verdict
    assert "(all 2 cores) was killed by SIGKILL" in finding["message"]
    assert "after step" in finding["message"]
    assert "out of memory?" in finding["message"]
    assert finding["cores"] == [0, 1]


def test_crashed(tmp_path):
    done, verdict, [finding] = run(tmp_path, "crash")
    assert done.returncode == 1
    assert "crashed (SIGSEGV)" in verdict
    assert "crashed" in finding["message"]
    assert "SIGSEGV" in finding["message"]
    place = finding["locations"][0]
    assert (place["filename"], place["row"], place["function"]) == (
        "train.py",
        ROWS["CRASH"],
        "die",
    )
    [stacks] = (tmp_path / "run").glob("p*/stacks.txt")
    assert "Segmentation fault" in stacks.read_text()


@pytest.mark.parametrize("code", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_left(tmp_path, code):
    done, verdict, [finding] = run(tmp_path, f"leave{code}")
    assert done.returncode == 1
    assert "core 1 of process" in verdict
    assert f"left by os._exit({code})" in verdict
    assert finding["message"].startswith("core 1 of process")
    place = finding["locations"][0]
    assert (place["filename"], place["row"]) == ("train.py", ROWS["LEAVE"])


def test_leaving_when_all_is_done_is_no_fault(tmp_path):
    done, verdict, findings = run(tmp_path, "done")
    assert done.returncode == 0
    assert findings == []
    assert "ended early" not in verdict


UNGATED = """\
import torch
import torch_xla
import torch.distributed as dist
import torch_xla.distributed.xla_backend


def main(index):
    dist.init_process_group("xla", init_method="xla://")
    x = torch.ones(4, device=torch_xla.device())
    if index == 0:
        name = dist.group.WORLD.group_name
        reduced = torch.ops._c10d_functional.all_reduce(x, "sum", name)
        reduced.cpu()  # line WAIT


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.slow
def test_a_rendezvous_that_xla_gave_up_has_the_line_where_a_core_waited(tmp_path):
    (tmp_path / "train.py").write_text(UNGATED)
    profile(
        tmp_path, "--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    report = json.loads((tmp_path / "r.json").read_text())
    [finding] = [item for item in report["findings"] if item["code"] == "XLA411"]
    assert "SIGABRT" in finding["message"]
    rows = [at for at, line in enumerate(UNGATED.splitlines(), 1) if line.endswith("# line WAIT")]
    assert [place["row"] for place in finding["locations"]] == rows
    assert "all cores reach the same collectives" in finding["suggestion"]


WORKER = """\
import ctypes
import os
import signal
import sys
import time
import torch
import torch_xla

device = torch_xla.device()
weight = torch.ones(4, device=device).requires_grad_()
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
    torch_xla.sync()
if os.environ["RANK"] == "1":
    if sys.argv[1] == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "SIGSEGV":
        ctypes.string_at(0)
    os._exit(3)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("SIGKILL", "was killed by SIGKILL after step 3 (out of memory?)"),
        pytest.param("SIGSEGV", "crashed after step 3 (SIGSEGV)", marks=pytest.mark.slow),
        pytest.param("os._exit", "left by os._exit(3) after step 3", marks=pytest.mark.slow),
    ],
)
def test_a_worker_of_torchrun_is_named_and_those_that_torchrun_ends_for_it_are_not(
    tmp_path, how, words
):
    """torchrun starts its workers by subprocess and never imports torch_xla itself."""
    (tmp_path / "train.py").write_text(WORKER)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    profile(
        tmp_path, "--output-format", "json", "--output-file", "r.json",
        "--", *launcher, "--nproc_per_node", "2", "train.py", how,
    )  # fmt: skip
    report = json.loads((tmp_path / "r.json").read_text())
    [finding] = [item for item in report["findings"] if item["code"] == "XLA411"]
    assert words in finding["message"]
    assert words.partition(" after")[0].partition(" by SIG")[0] in report["summary"]["verdict"]
