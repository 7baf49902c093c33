"""The cores call a collective as often as their own tokens ask for."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
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
        for _ in range(1 + index):  # how many experts this core's tokens need
            xm.all_reduce("sum", loss.detach())  # fault
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
