"""Residue-level targets from a folder of .npz files (one per chain)."""
import pathlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

LENGTH = 512
ALPHABET = {c: i + 1 for i, c in enumerate("ACDEFGHIKLMNPQRSTVWYX")}


class Chains(Dataset):
    def __init__(self, root, split):
        self.files = sorted((pathlib.Path(root) / split).glob("*.npz"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        raw = np.load(self.files[i])
        n = min(len(raw["seq"]), LENGTH)
        ids = np.zeros(LENGTH, dtype=np.int64)
        ids[:n] = [ALPHABET.get(c, 21) for c in raw["seq"][:n]]
        fold = np.full(LENGTH, -1, dtype=np.int64)
        fold[:n] = raw["ss"][:n]
        rsa = np.zeros(LENGTH, dtype=np.float32)
        rsa[:n] = raw["rsa"][:n]
        return {
            "ids": torch.from_numpy(ids),
            "pad": torch.arange(LENGTH) >= n,
            "ss": torch.from_numpy(fold),
            "rsa": torch.from_numpy(rsa),
        }


def make_loader(root, split, per_host, mesh, device, train):
    data = Chains(root, split)
    sampler = DistributedSampler(
        data, num_replicas=xr.process_count(), rank=xr.process_index(), shuffle=train, drop_last=train
    )
    loader = DataLoader(data, batch_size=per_host, sampler=sampler, num_workers=8, drop_last=True)
    spec = xs.ShardingSpec(mesh, ("fsdp", None), minibatch=True)
    return pl.MpDeviceLoader(loader, device, input_sharding={k: spec for k in ("ids", "pad", "ss", "rsa")}), sampler
