"""FSDPv2: weights, gradients and batch are sharded over the devices, by one program for all."""

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from common import Net, points
from torch.nn import functional as F
from torch.utils.data import DataLoader, default_collate
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)


def named(samples):
    x, y = default_collate(samples)
    return {"x": x, "y": y}


def main():
    xr.use_spmd()
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices,), ("fsdp",))
    xs.set_global_mesh(mesh)
    torch.manual_seed(0)
    model = FSDPv2(Net().to(torch_xla.device()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = pl.MpDeviceLoader(
        DataLoader(points(), 16, drop_last=True, collate_fn=named),
        torch_xla.device(),
        input_sharding={
            "x": xs.ShardingSpec(mesh, ("fsdp", None)),
            "y": xs.ShardingSpec(mesh, ("fsdp",)),
        },
    )
    for batch in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
