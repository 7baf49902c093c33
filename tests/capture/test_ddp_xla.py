"""A real run of a healthy DistributedDataParallel program: what its constructor does is no fault.

It reads tensors and ends graphs before the first step, and in the second step it makes its buckets
anew, so that the step is another graph once.
"""

from __future__ import annotations

import json
import sys

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

CORES, STEPS = 2, 12
PROGRAM = f"""
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_backend
from torch.nn.parallel import DistributedDataParallel


def train(index):
    dist.init_process_group("xla", init_method="xla://")
    device = torch_xla.device()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8) for _ in range(12)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range({STEPS}):
        optimizer.zero_grad()
        loss = model(torch.full((16, 8), index + 1.0).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()


if __name__ == "__main__":
    torch_xla.launch(train)
"""


def test_the_constructor_of_ddp_is_no_fault_and_no_step(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    report = ("--output-format", "json", "--output-file", "r.json")
    words = ("--simulate-cores", str(CORES), *report, "--", sys.executable, "train.py")
    done = profile(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "r.json").read_text())
    assert [one for one in told["findings"] if "runtime" in one["confirmed_by"]] == []
    summary = told["summary"]
    assert (summary["cores"], summary["steps"]) == (CORES, STEPS)
    assert summary["host_syncs"] > 0  # counted, at the constructor's line
    assert summary["compilations"] > CORES
    assert summary["compilations_after_warmup"] == 0
