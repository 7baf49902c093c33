"""FSDPv2: a mesh, layers wrapped by a policy, and their outputs sharded."""

import functools

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch.utils.data import DataLoader
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from project.data import Documents

xr.use_spmd()


def build(mesh):
    model = LlamaForCausalLM(LlamaConfig()).to(torch_xla.device())
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
    )

    def shard_output(output, mesh):
        hidden = output[0] if isinstance(output, tuple) else output.logits
        xs.mark_sharding(hidden, mesh, ("fsdp", None, None))

    return FSDPv2(model, mesh=mesh, shard_output=shard_output, auto_wrap_policy=policy)


def main():
    torch.manual_seed(0)
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices, 1), ("fsdp", "model"))
    model = build(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Documents("text"), batch_size=128, num_workers=8, drop_last=True)
    spec = xs.ShardingSpec(mesh, ("fsdp", None))
    batches = pl.MpDeviceLoader(loader, torch_xla.device(), input_sharding=spec)
    model.train()
    for tokens in batches:
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    print("done")


if __name__ == "__main__":
    main()
