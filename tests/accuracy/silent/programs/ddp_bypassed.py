"""The module inside of DistributedDataParallel is called, and so nothing is reduced."""

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
from common import Net, shares
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def main(index):
    dist.init_process_group("xla", init_method="xla://")
    device = torch_xla.device()
    torch.manual_seed(0)
    wrapped = DistributedDataParallel(Net().to(device))
    model = wrapped.module
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)  # fault
        loss.backward()
        optimizer.step()  # here


if __name__ == "__main__":
    torch_xla.launch(main)
