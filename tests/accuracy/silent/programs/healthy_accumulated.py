"""Gradients of two batches are added up, reduced into new tensors and clipped."""

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
    for step, (x, y) in enumerate(pl.MpDeviceLoader(shares(), device), 1):
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if step % 2 == 0:
            for p in model.parameters():
                p.grad = xm.all_reduce(xm.REDUCE_SUM, p.grad, scale=1.0 / xr.world_size())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    torch_xla.launch(main)
