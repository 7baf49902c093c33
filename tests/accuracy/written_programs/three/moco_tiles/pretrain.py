"""Contrastive pretraining on satellite tiles. python pretrain.py /data/tiles"""
import collections
import json
import os
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

from moco import MoCo

EPOCHS, BATCH, BASE_LR, SEED = 100, 64, 0.03, 21
SUMMARY = {"steps": 0, "loss": None}


class TwoViews(Dataset):
    def __init__(self, root):
        self.paths = [p for p in sorted(pathlib.Path(root).rglob("*.jpg")) if p.stat().st_size > 0]
        self.tf = T.Compose([
            T.RandomResizedCrop(224, scale=(0.2, 1.0)),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            T.RandomGrayscale(0.2),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
        ])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        tile = Image.open(self.paths[i]).convert("RGB")
        return {"query": self.tf(tile), "key": self.tf(tile), "index": i}


class Collapse:
    """Counts the steps in which all queries fall onto one point."""

    def __init__(self, least=0.02):
        self.least, self.count = least, 0

    def __call__(self, q):
        if (spread := q.std(dim=0).mean()) < self.least:
            self.count += 1
        return spread


class Step:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.collapse = Collapse()

    def __call__(self, batch):
        self.optimizer.zero_grad()
        out = self.model(**batch)
        target = torch.zeros(out["logits"].shape[0], dtype=torch.long, device=out["logits"].device)
        loss = F.cross_entropy(out["logits"], target)
        loss.backward()
        xm.optimizer_step(self.optimizer)
        spread = self.collapse(out["q"])
        return {"loss": loss.detach(), "near": out["near"].mean(), "spread": spread}


def over_cores(name, value):
    return xm.mesh_reduce(name, value, np.mean)


def report(rank, epoch, sums, steps):
    means = {k: (v / steps).item() for k, v in sums.items()}
    if rank != 0:
        return means
    whole = {k: over_cores(f"{k}{epoch}", v) for k, v in means.items()}
    print(f"epoch {epoch}", json.dumps(whole), flush=True)
    return whole


def worker(index, root):
    device, rank, world = torch_xla.device(), xr.global_ordinal(), xr.world_size()
    torch.manual_seed(SEED)
    model = MoCo().to(device)
    torch.manual_seed(SEED + rank)
    lr = BASE_LR * BATCH * world / 256
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)

    tiles = TwoViews(root)
    sampler = DistributedSampler(tiles, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(tiles, BATCH, sampler=sampler, num_workers=8, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)

    step = Step(model, optimizer)
    recent = collections.deque(maxlen=50)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        sums = {}
        for i, batch in enumerate(batches):
            out = step(batch)
            sums = {k: sums.get(k, 0.0) + v for k, v in out.items()}
            if i % 100:
                continue
            recent.append(out["loss"].item())
        schedule.step()
        if rank == 0:
            print("recent", list(recent)[-5:], flush=True)
        means = report(rank, epoch, sums, len(batches))
        SUMMARY.update(steps=SUMMARY["steps"] + len(batches), loss=means["loss"])
        if (epoch + 1) % 10:
            continue
        xm.save(model.online.state_dict(), os.path.join(root, f"moco{epoch + 1:03d}.pt"))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "/data/tiles"
    torch_xla.launch(worker, args=(root,))
    print(f"{SUMMARY['steps']} steps, last loss {SUMMARY['loss']}")


if __name__ == "__main__":
    main()
