"""One core."""

import torch
import torch_xla
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
        optimizer.step()
        torch_xla.sync()


if __name__ == "__main__":
    main(0)
