"""Training on simulated cores: equal models everywhere, and the numbers of plain torch."""

from __future__ import annotations

import math

import pytest
import simulated
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

pytestmark = pytest.mark.xla

#: Sizes that leave a partial last batch on every core.
SAMPLES, BATCH, EPOCHS, RATE = 88, 4, 2, 0.01

PROGRAM = """
import json, os
import numpy as np
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH, EPOCHS, RATE = 88, 4, 2, 0.01


def net(dropout):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout),
        nn.Linear(4 * 6 * 6, 3))


WRAPPED = {}
for DROPOUT in (0.0, 0.2):
    torch.manual_seed(3)
    WRAPPED[DROPOUT] = xmp.MpModelWrapper(net(DROPOUT))


def main(index, case):
    os.chdir(os.environ["SIMULATED_CASE"])  # a spawned process begins where the program began
    device = torch_xla.device()
    assert index == xr.global_ordinal()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 1, 8, 8), torch.randint(0, 3, (SAMPLES,)))
    sampler = DistributedSampler(
        data, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model = WRAPPED[0.2 if case == "dropout" else 0.0].to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses, means = [], []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            losses.append(loss.item())
        means.append(float(xm.mesh_reduce("loss", losses[-1], np.mean)))
        xm.master_print(f"epoch {epoch} done")
    xm.save(model.state_dict(), "model.pt")
    xm.rendezvous("saved")
    weights = {name: one.detach().cpu().tolist() for name, one in model.named_parameters()}
    saved = torch.load("model.pt")
    result = {"world": xr.world_size(), "losses": losses, "means": means, "weights": weights,
              "master": xm.is_master_ordinal(),
              "saved": {name: saved[name].tolist() for name in weights}}
    with open(f"result{index}.json", "w") as file:
        json.dump(result, file)


def start(case):
    if case == "launch":
        torch_xla.launch(main, args=(case,))
    elif case == "one":
        xmp.spawn(main, args=(case,), nprocs=1)
    elif case == "main":
        main(0, case)
    else:
        xmp.spawn(main, args=(case,), start_method="fork")
"""


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """``nprocs=1`` comes last: it starts the runtime in the program's own process."""
    folder = tmp_path_factory.mktemp("eight")
    return simulated.run_cases(folder, 8, PROGRAM, ("launch", "dropout", "one"))


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 3),
    )


def emulate(cores: int) -> list[list[float]]:
    """The losses of each core, computed by plain torch on the CPU, core after core."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 1, 8, 8), torch.randint(0, 3, (SAMPLES,)))
    samplers = [DistributedSampler(data, cores, core) for core in range(cores)]
    models = [net() for _ in range(cores)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=RATE) for model in models]
    losses: list[list[float]] = [[] for _ in range(cores)]
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for batches in zip(
            *(DataLoader(data, BATCH, sampler=one) for one in samplers), strict=True
        ):
            for core, (x, y) in enumerate(batches):
                optimizers[core].zero_grad()
                loss = nn.functional.cross_entropy(models[core](x), y)
                loss.backward()
                losses[core].append(loss.item())
            for same in zip(*(model.parameters() for model in models), strict=True):
                mean = torch.stack([one.grad for one in same]).mean(0)
                for one in same:
                    one.grad = mean.clone()
            for optimizer in optimizers:
                optimizer.step()
    return losses


def check(done, cores):
    assert done.code == 0, done.stderr
    assert "hook off" not in done.stderr
    # Each core's BatchNorm keeps statistics of its own, which is told and is no fault.
    told = [facts["check"] if kind == "silent" else kind for kind, facts in done.events]
    assert set(told) <= {"buffers"}
    assert sorted(done.results) == list(range(cores))
    assert done.stdout.splitlines() == ["epoch 0 done", "epoch 1 done"]
    expected = emulate(cores)
    steps = math.ceil(math.ceil(SAMPLES / cores) / BATCH)
    for core, found in done.results.items():
        assert len(found["losses"]) == steps * EPOCHS
        assert found["losses"] == pytest.approx(expected[core], rel=1e-3, abs=1e-4)
        assert found["world"] == cores
        assert found["master"] == (core == 0)
        assert found["weights"] == done.results[0]["weights"] == found["saved"]
        assert found["means"] == done.results[0]["means"]
    last = [losses[steps - 1] for losses in expected]
    assert done.results[0]["means"][0] == pytest.approx(sum(last) / cores, rel=1e-3)


def test_losses_of_eight_cores_are_those_of_plain_torch(eight):
    check(eight["launch"], 8)


def test_losses_of_the_only_core_are_those_of_plain_torch(tmp_path):
    check(simulated.run_cases(tmp_path, 1, PROGRAM, ["main"])["main"], 1)


def test_with_dropout_the_cores_still_end_with_one_model(eight):
    done = eight["dropout"]
    assert done.code == 0, done.stderr
    assert sorted(done.results) == list(range(8))
    assert len({str(found["losses"]) for found in done.results.values()}) == 8
    for found in done.results.values():
        assert found["weights"] == done.results[0]["weights"] == found["saved"]


def test_one_core_of_eight_runs_alone(eight):
    """``nprocs=1`` uses one device: no core waits for the seven that do not run."""
    done = eight["one"]
    assert done.code == 0, done.stderr
    assert list(done.results) == [0]
    assert done.results[0]["losses"] == pytest.approx(emulate(1)[0], rel=1e-3, abs=1e-4)
