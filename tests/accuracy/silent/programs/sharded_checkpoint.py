"""The checkpoint of a sharded model holds what the master core has."""

import os
import tempfile

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch.nn import functional as F
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = FSDP(Net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    xm.save(model.state_dict(), os.path.join(tempfile.gettempdir(), f"{os.getpid()}.pt"))  # fault


if __name__ == "__main__":
    torch_xla.launch(main)
