"""A model in bfloat16 whose updates are too small to change its weights."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch.nn import functional as F


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device, dtype=torch.bfloat16)  # fault
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.bfloat16()), y)
        loss.backward()
        xm.optimizer_step(optimizer)  # here


if __name__ == "__main__":
    torch_xla.launch(main)
