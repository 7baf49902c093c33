"""The gradients of the norm's parameters are left out of the reduction."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from common import Net, shares
from torch.nn import functional as F


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        reduced = [p.grad for name, p in model.named_parameters() if "norm" not in name]  # fault
        xm.all_reduce("sum", reduced, scale=1 / xr.world_size())
        optimizer.step()  # here


if __name__ == "__main__":
    torch_xla.launch(main)
