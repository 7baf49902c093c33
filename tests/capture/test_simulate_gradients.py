"""Gradients that end at an exchange between cores: a sentence in place of a segmentation fault."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

CORES = 4

PROGRAM = """
import json
import torch, torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm


def main(index, case):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if case == "empty":
        xm.broadcast_master_param(torch.nn.ReLU())
    for step in range(20 if case == "some" else 3):
        optimizer.zero_grad()
        data = torch.rand(2, 8, generator=torch.Generator().manual_seed(10 * step + index))
        own = torch.nn.functional.normalize(model(data.to(device)), dim=-1)
        every = (xf if case == "through" else xm).all_gather(own)  # the exchange
        loss = (own.sum() if case == "some" else 0) + (every @ every.t()).logsumexp(1).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    found = [one.detach().cpu().tolist() for one in model.parameters()]
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gradients")
    return simulated.run_cases(folder, CORES, PROGRAM, ("without", "empty", "some", "through"))


@pytest.mark.slow
def test_no_gradient_at_all_is_told_with_the_exchange_that_passes_none_back(runs):
    done = runs["without"]
    assert done.code == 1
    assert done.kinds == ["core-failed"]
    assert "no parameter of the optimizer has a gradient" in done.error
    line = PROGRAM[: PROGRAM.index("  # the exchange")].count("\n") + 1
    assert f"xm.all_gather at {done.error.split(' at ')[1].split(':')[0]}:{line} " in done.error
    assert "call torch_xla.core.functions.all_gather" in done.error


def test_a_broadcast_of_nothing_is_told(runs):
    done = runs["empty"]
    assert done.code == 1
    assert "xm.collective_broadcast was given no tensors" in done.error


def test_gradients_that_end_at_an_exchange_on_several_cores_at_once(runs):
    """torch warns of the exchange without gradient in the backward pass of each core."""
    done = runs["some"]
    assert done.code == 0, done.stderr
    assert len(done.results) == CORES
    assert done.events == []


def test_gradients_pass_through_the_exchange_that_takes_each_core_its_own(runs):
    """Each core takes its own part, so the cores' mean is a part of the whole gradient."""
    import torch

    done = runs["through"]
    assert done.code == 0, done.stderr
    assert done.events == []
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 / CORES)
    for step in range(3):
        optimizer.zero_grad()
        seeds = (torch.Generator().manual_seed(10 * step + core) for core in range(CORES))
        data = torch.cat([torch.rand(2, 8, generator=seed) for seed in seeds])
        every = torch.nn.functional.normalize(model(data), dim=-1)
        (every @ every.t()).logsumexp(1).mean().backward()
        optimizer.step()
    wanted = [one.detach() for one in model.parameters()]
    assert len(done.results) == CORES
    for found in done.results.values():
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.tensor(one), other, rtol=1e-4, atol=1e-6)
