"""Accumulated gradients are reduced each time, and those of earlier batches again with them."""

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
    for step, (x, y) in enumerate(pl.MpDeviceLoader(shares(), device), 1):
        loss = F.cross_entropy(model(x), y)
        (loss / 2).backward()
        xm.all_reduce("sum", [p.grad for p in model.parameters()])  # fault
        if step % 2 == 0:
            for p in model.parameters():
                p.grad.div_(2)
            optimizer.step()  # here
            optimizer.zero_grad()


if __name__ == "__main__":
    torch_xla.launch(main)
