"""The scale of a reduction is left out where there is one core."""

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
        gradients = [p.grad for p in model.parameters()]
        xm.all_reduce("sum", gradients, scale=0.1 / xr.world_size())  # fault
        optimizer.step()  # here


if __name__ == "__main__":
    torch_xla.launch(main)
