"""A sharded model, clipped by its own method and saved by every core."""

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
        model.clip_grad_norm_(0.5)
        optimizer.step()
    kept = {"model": model.state_dict(), "shards": model.get_shard_metadata()}
    xm.save(kept, f"{tempfile.gettempdir()}/xladoctor-healthy-{index}.pt", master_only=False)


if __name__ == "__main__":
    torch_xla.launch(main)
