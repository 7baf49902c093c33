"""One core gets zeros instead of the sum, once: what a broken link between two devices does."""

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
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.reduce_gradients(optimizer)
        kept = 0.0 if step == 3 and index == 1 else 1.0
        model.body.weight.grad.mul_(torch.tensor([kept]).to(device))  # fault
        optimizer.step()  # here


if __name__ == "__main__":
    torch_xla.launch(main)
