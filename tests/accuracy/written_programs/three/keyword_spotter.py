#!/usr/bin/env python3
"""Spots 35 spoken words in one second of raw audio (Speech Commands v2 layout)."""
import json
import math
import pathlib
import random
import sys

import soundfile
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

FLAGS = {
    "root": "/data/speech_commands_v2",
    "rate": 16000,
    "filters": 80,
    "width": 160,
    "batch": 128,
    "epochs": 40,
    "lr": 1e-2,
    "seed": 1905,
    "shift": 0.1,
    "report": None,
}
if len(sys.argv) > 1 and (override := pathlib.Path(sys.argv[1])).exists():
    FLAGS.update(json.loads(override.read_text()))


class Words(Dataset):
    def __init__(self, flags, listing, train):
        root = pathlib.Path(flags["root"])
        listed = {p for name in ("validation_list.txt", "testing_list.txt") for p in (root / name).read_text().split()}
        here = set((root / listing).read_text().split()) if listing else None
        every = sorted(p.relative_to(root).as_posix() for p in root.glob("[a-z]*/*.wav"))
        self.paths = [p for p in every if (p in here if here is not None else p not in listed)]
        self.names = sorted({p.split("/")[0] for p in every})
        self.root, self.rate, self.train = root, flags["rate"], train
        self.most = int(flags["shift"] * flags["rate"])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        wave, _ = soundfile.read(self.root / self.paths[i], dtype="float32")
        x = torch.zeros(self.rate)
        x[: len(wave)] = torch.from_numpy(wave[: self.rate])
        if self.train and (by := random.randint(-self.most, self.most)):
            x = x.roll(by)
        return x, self.names.index(self.paths[i].split("/")[0])


def gammatone(n, rate, taps=400):
    t = torch.arange(taps) / rate
    low, high = 21.4 * math.log10(1 + 0.00437 * 50), 21.4 * math.log10(1 + 0.00437 * 7600)
    bank = []
    for k in range(n):
        f = (10 ** ((low + (high - low) * k / (n - 1)) / 21.4) - 1) / 0.00437
        width = 1.019 * 24.7 * (4.37 * f / 1000 + 1)
        h = t ** 3 * torch.exp(-2 * math.pi * width * t) * torch.cos(2 * math.pi * f * t)
        bank.append(h / h.norm())
    return torch.stack(bank)[:, None]


class Spotter(nn.Module):
    def __init__(self, flags, classes):
        super().__init__()
        n, w = flags["filters"], flags["width"]
        self.bank = gammatone(n, flags["rate"])
        self.body = nn.Sequential()
        for i, dilation in enumerate((1, 2, 4, 8)):
            self.body.append(nn.Conv1d(n if i == 0 else w, w, 5, padding=2 * dilation, dilation=dilation))
            self.body.append(nn.BatchNorm1d(w))
            self.body.append(nn.SiLU())
        self.leave = nn.Linear(w, classes)

    def forward(self, wave):
        x = F.conv1d(wave[:, None], self.bank.to(wave.device), stride=160, padding=200)
        x = torch.log(x.pow(2).clamp_min(1e-6))
        return self.leave(self.body(x).mean(-1))


def build(flags, classes):
    net = Spotter(flags, classes)
    decayed = [p for p in net.parameters() if p.dim() > 1]
    plain = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 1e-3}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.Adafactor(groups, lr=flags["lr"])
    return net, optimizer


def loaders(flags):
    train, dev = Words(flags, None, True), Words(flags, "validation_list.txt", False)
    share = {"num_replicas": xr.world_size(), "rank": xr.global_ordinal()}
    by_core = DistributedSampler(train, shuffle=True, drop_last=True, **share)
    return (
        DataLoader(train, flags["batch"], sampler=by_core, drop_last=True),
        DataLoader(
            dev,
            flags["batch"],
            sampler=DistributedSampler(dev, shuffle=False, **share),
            persistent_workers=True,
        ),
        train.names,
    )


def accuracy(net, batches, device):
    net.eval()
    right, n = torch.zeros((), device=device), 0
    with torch.no_grad():
        for wave, word in pl.MpDeviceLoader(batches, device):
            right = right + net(wave).argmax(1).eq(word).sum()
            n += word.size(0)
    net.train()
    every = xm.all_reduce(xm.REDUCE_SUM, torch.stack([right, torch.tensor(float(n), device=device)]))
    return (every[0] / every[1]).item()


def spot(index, flags):
    torch.manual_seed(flags["seed"])
    train, dev, names = loaders(flags)
    net, optimizer = build(flags, len(names))
    device = xm.xla_device()
    net.to(device)
    random.seed(flags["seed"] + index)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, flags["epochs"] * len(train))
    trace = []

    def step(wave, word):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(wave), word, label_smoothing=0.1)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        schedule.step()
        return loss.detach()

    best = 0.0
    for epoch in range(flags["epochs"]):
        net.train()
        total = torch.zeros((), device=device)
        for wave, word in train:
            total += step(wave.to(device), word.to(device))
        if (score := accuracy(net, dev, device)) > best:
            best = score
            xm.save(net.state_dict(), "spotter.pt")
        mean = total.item() / len(train)
        trace.append({"epoch": epoch, "loss": round(mean, 4), "dev": round(score, 4)})
        if not xm.is_master_ordinal(local=False):
            continue
        print(trace[-1], flush=True)
        if flags["report"] is None:
            continue
        pathlib.Path(flags["report"]).write_text(json.dumps(trace))


if __name__ == "__main__":
    xmp.spawn(spot, args=(FLAGS,))
