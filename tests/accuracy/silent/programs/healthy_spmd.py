"""SPMD: one program for all devices, the batch is shared out over them."""

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from common import Net, points
from torch.nn import functional as F
from torch.utils.data import DataLoader, default_collate


def named(samples):
    x, y = default_collate(samples)
    return {"x": x, "y": y}


def main():
    xr.use_spmd()
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices,), ("data",))
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = pl.MpDeviceLoader(
        DataLoader(points(), 16, drop_last=True, collate_fn=named),
        device,
        input_sharding={
            "x": xs.ShardingSpec(mesh, ("data", None)),
            "y": xs.ShardingSpec(mesh, ("data",)),
        },
    )
    for batch in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
