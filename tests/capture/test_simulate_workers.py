"""Data loaders with workers, and several launches, on simulated cores."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

CORES, WORKERS = 2, 2

PROGRAM = """
import json, os, sys
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

with open("imports", "a") as file:
    file.write("x")


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index)]), get_worker_info().id, os.getpid()


def main(index, launch):
    data = Numbers()
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2)
    seen, workers, processes = [], set(), set()
    for epoch in range(2):
        for x, worker, process in pl.MpDeviceLoader(loader, torch_xla.device()):
            seen += x.flatten().tolist()
            workers |= set(worker.tolist())
            processes |= set(process.tolist())
    total = xm.all_reduce("sum", torch.tensor([sum(seen)]).to(torch_xla.device())).item()
    result = {"seen": seen, "workers": sorted(workers), "processes": len(processes),
              "own": os.getpid() in processes, "total": total, "launch": launch}
    with open(f"result{index}.json", "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    torch_xla.launch(main, args=(1,))
    torch_xla.launch(main, args=(2,))
"""


@pytest.mark.slow
def test_workers_read_each_share_without_importing_the_program_again(tmp_path):
    done = simulated.run(tmp_path, CORES, PROGRAM)
    assert done.code == 0, done.stderr
    assert done.events == []
    # The program itself and one process for each launch; 16 workers have not imported it.
    assert (tmp_path / "imports").read_text() == "xxx"
    for core, found in done.results.items():
        assert found["seen"] == [float(one) for one in range(core, 64, CORES)] * 2
        assert found["workers"] == list(range(WORKERS))
        assert found["processes"] == 2 * WORKERS
        assert not found["own"]
        assert found["total"] == 2 * sum(range(64))
        assert found["launch"] == 2
