"""As many cores as one process may hold train one model."""

from __future__ import annotations

import pytest
import simulated

from xladoctor.capture.simulate import MAX_CORES

pytestmark = pytest.mark.xla

PROGRAM = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index, case):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), index + step + 2.0).to(device)).square().mean().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    numbers = xm.all_gather(torch.tensor([index + 2.0]).to(device))
    found = [model.bias.detach().cpu().tolist(), numbers.cpu().tolist()]
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""


def test_all_of_them_meet_in_each_step(tmp_path):
    done = simulated.run_cases(tmp_path, MAX_CORES, PROGRAM, ["most"])["most"]
    assert done.error is None, done.stderr
    assert done.kinds == []
    assert sorted(done.results) == list(range(MAX_CORES))
    assert len(set(map(str, done.results.values()))) == 1
    assert done.results[0][1] == [core + 2.0 for core in range(MAX_CORES)]
