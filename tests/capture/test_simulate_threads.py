"""What a core's own threads do is done on that core's device: loaders, pools, ``"xla"`` by name."""

from __future__ import annotations

import pytest
import simulated
import torch

pytestmark = pytest.mark.xla

CORES = 4

PROGRAM = """
import concurrent.futures
import json
import threading
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset


def batches(index):
    # fixed numbers, others on each core
    made = torch.Generator().manual_seed(index)
    data = TensorDataset(torch.rand(12, 4, generator=made), torch.rand(12, 2, generator=made))
    # a ParallelLoader begins as it is made, and its thread asks the loader for a seed: from the
    # core's numbers that would fall anywhere between those for the model's weights
    return DataLoader(data, batch_size=3, generator=made)


def train(index, loader):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model = model.to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    devices = set()
    for data, target in loader:
        devices |= {str(data.device), str(target.device)}
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    return [sorted(devices), [one.detach().cpu().tolist() for one in model.parameters()]]


def main(index, case):
    found = {"device": str(torch_xla.device())}
    found["mp"] = train(index, pl.MpDeviceLoader(batches(index), "xla"))
    found["parallel"] = train(
        index, pl.ParallelLoader(batches(index), ["xla"]).per_device_loader("xla"))
    found["torch_device"] = train(index, pl.MpDeviceLoader(batches(index), torch.device("xla")))
    inside = []

    def helper():
        inside.append(str(torch.ones(2, device="xla").device))
        deeper = threading.Thread(target=lambda: inside.append(str(torch_xla.device())))
        deeper.start()
        deeper.join()

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        inside += pool.map(lambda _: str(torch.zeros(2).to("xla").device), range(4))

    class Own(threading.Thread):
        def run(self):
            inside.append(str(torch_xla.device()))

    own = Own()
    own.start()
    own.join()
    found["inside"] = inside
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    done = simulated.run_cases(tmp_path_factory.mktemp("threads"), CORES, PROGRAM, ["named"])
    done = done["named"]
    assert done.code == 0, done.stderr
    assert done.events == []
    assert sorted(done.results) == list(range(CORES))
    return done.results


def plain():
    """The same training by plain torch: one model, the mean of all cores' gradients."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    data = []
    for core in range(CORES):
        made = torch.Generator().manual_seed(core)
        data.append((torch.rand(12, 4, generator=made), torch.rand(12, 2, generator=made)))
    for at in range(0, 12, 3):
        optimizer.zero_grad()
        for inputs, target in data:
            loss = torch.nn.functional.mse_loss(model(inputs[at : at + 3]), target[at : at + 3])
            (loss / CORES).backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


@pytest.mark.parametrize("loader", ["mp", "parallel", "torch_device"])
def test_batches_named_xla_reach_their_own_core(results, loader):
    expected = plain()
    for found in results.values():
        devices, parameters = found[loader]
        assert devices == [found["device"]]
        for own, other in zip(parameters, expected, strict=True):
            torch.testing.assert_close(torch.tensor(own), other, rtol=1e-4, atol=1e-5)


def test_threads_that_a_core_starts_use_its_device(results):
    assert len({found["device"] for found in results.values()}) == CORES
    for found in results.values():
        assert set(found["inside"]) == {found["device"]}
