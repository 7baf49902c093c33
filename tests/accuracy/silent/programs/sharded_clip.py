"""Each core clips a sharded model by the norm of its own shard."""

import torch
import torch_xla
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
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # fault
        optimizer.step()


if __name__ == "__main__":
    torch_xla.launch(main)
