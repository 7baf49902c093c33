"""FSDP: clipped by the norm of all shards, and each core writes its own."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP

from project.data import Tokens


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden):
        return hidden + self.mlp(self.norm(hidden))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=32_000, width=1024, depth=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def train(index, flags):
    torch.manual_seed(flags["seed"])
    device = torch_xla.device()
    model = FSDP(LanguageModel().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=flags["lr"])
    dataset = Tokens(flags["data"], length=1025)
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=4, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    for epoch in range(flags["epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        for tokens in batches:
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
        state = {"model": model.state_dict(), "shard_metadata": model.get_shard_metadata()}
        path = f"epoch{epoch}-{xr.global_ordinal()}-of-{xr.world_size()}.pt"
        xm.save(state, path, master_only=False)
        xm.master_print(f"epoch {epoch} is saved")


if __name__ == "__main__":
    torch_xla.launch(train, args=({"seed": 1, "lr": 3e-4, "epochs": 2, "data": "tokens"},))
