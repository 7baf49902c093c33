"""SPMD on many hosts: each host reads its part, flash attention on shards, a sharded start."""

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_xla.experimental.custom_kernel import flash_attention

from project.data import Documents

HEADS = 16


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.scale = (width // HEADS) ** -0.5

    def forward(self, hidden):
        batch, length, width = hidden.shape
        q, k, v = self.qkv(hidden).view(batch, length, 3, HEADS, width // HEADS).unbind(2)
        mixed = flash_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            causal=True,
            sm_scale=self.scale,
            partition_spec=("fsdp", None, None, None),
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    def __init__(self, vocabulary=50_304, width=2048, depth=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Attention(width) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.head(hidden)


def sharded(model, mesh, path):
    model.load_state_dict(torch.load(path, map_location="cpu", mmap=True))
    model = model.to(torch_xla.device())
    for layer in model.layers:
        xs.mark_sharding(layer.qkv.weight, mesh, ("fsdp", None))
        xs.mark_sharding(layer.out.weight, mesh, (None, "fsdp"))
    xs.mark_sharding(model.head.weight, mesh, ("fsdp", None))
    return model


def main():
    xr.use_spmd()
    torch.manual_seed(0)
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices, 1), ("fsdp", "model"))
    model = sharded(Decoder(), mesh, "start.pt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    dataset = Documents("documents", length=2049)
    sampler = DistributedSampler(
        dataset, num_replicas=xr.process_count(), rank=xr.process_index(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=8, drop_last=True)
    batches = pl.MpDeviceLoader(
        loader,
        torch_xla.device(),
        input_sharding=xs.ShardingSpec(mesh, ("fsdp", None), minibatch=True),
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, tokens in enumerate(batches):
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                xm.add_step_closure(lambda at, loss: print(at, loss.item()), args=(step, loss))


if __name__ == "__main__":
    main()
