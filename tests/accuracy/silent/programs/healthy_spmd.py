"""SPMD: one program for all devices, the batch is shared out over them."""

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from common import Net, points
from torch.nn import functional as F
from torch.utils.data import DataLoader


def main():
    xr.use_spmd()
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices, 1), ("data", "model"))
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = pl.MpDeviceLoader(
        DataLoader(points(), 16, drop_last=True),
        device,
        input_sharding=[xs.ShardingSpec(mesh, ("data", None)), xs.ShardingSpec(mesh, ("data",))],
    )
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
