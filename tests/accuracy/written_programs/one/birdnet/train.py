"""python train.py --clips /data/clips  (one process per core)"""
import argparse
import functools
import logging
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from nets import Shadow, SpectrogramNet, blend
from runtime import Running, clocked, frozen, log, main_device


class Clips(Dataset):
    def __init__(self, root, part, species, mix=0.0):
        self.spectra = np.load(Path(root) / f"{part}.spectra.npy", mmap_mode="r")
        self.birds = np.load(Path(root) / f"{part}.birds.npy")
        self.species, self.mix = species, mix

    def __len__(self):
        return len(self.birds)

    def __getitem__(self, k):
        target = torch.zeros(self.species)
        target[int(self.birds[k])] = 1.0
        weight = random.betavariate(self.mix, self.mix) if self.mix else 1.0
        return torch.from_numpy(self.spectra[k].astype(np.float32))[None], target, torch.tensor(weight)


class BaseTrainer:
    """fit() is the skeleton; subclasses fill loss(), before_epoch(), after_epoch()."""

    def __init__(self, opts, net, device):
        self.opts, self.device = opts, device
        self.net = net.to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=opts.lr, weight_decay=0.05)
        self.shadow = Shadow(self.net)
        self.step = functools.partial(self._step, self.net, self.optimizer)

    def loss(self, net, batch):
        raise NotImplementedError

    def before_epoch(self, epoch): ...

    def after_epoch(self, epoch, meters): ...

    def on_step(self, outputs):
        return outputs

    def _step(self, net, optimizer, batch):
        optimizer.zero_grad(set_to_none=True)
        value = self.loss(net, batch)
        value.backward()
        xm.optimizer_step(optimizer)
        self.shadow.follow(net)
        return self.on_step({"loss": value})

    def fit(self, train, held):
        for epoch in range(self.opts.epochs):
            self.before_epoch(epoch)
            meters = {"loss": Running(self.device)}
            with clocked(f"epoch {epoch}"):
                for batch in train:
                    for name, value in self.step(batch).items():
                        meters.setdefault(name, Running(self.device)).update(value)
            meters["held"] = self.evaluate(held)
            self.after_epoch(epoch, meters)

    def evaluate(self, held):
        meter = Running(self.device)
        with frozen(self.shadow.net) as net:
            for batch in held:
                spectra, target, _ = (part.to(self.device) for part in batch)
                hit = net(spectra).argmax(1).eq(target.argmax(1)).float().mean()
                meter.update(hit, len(spectra))
                torch_xla.sync()
        return meter


class BirdTrainer(BaseTrainer):
    def __init__(self, *args, sampler, **kwargs):
        super().__init__(*args, **kwargs)
        self.sampler, self.best, self.worst = sampler, 0.0, 0.0
        self.criterion = nn.BCEWithLogitsLoss()

    def loss(self, net, batch):
        spectra, target = blend(*batch)
        return self.criterion(net(spectra), target)

    def on_step(self, outputs):
        value = outputs["loss"].detach()
        self.worst = 0.9 * self.worst + 0.1 * value.cpu().numpy()
        return outputs

    def before_epoch(self, epoch):
        self.sampler.set_epoch(epoch)

    def after_epoch(self, epoch, meters):
        hits, seen = meters.pop("held").total, len(self.sampler.dataset)
        held = xm.all_reduce(xm.REDUCE_SUM, hits) / self.opts.held_clips
        torch_xla.sync()
        held = held.item()
        told = ", ".join(f"{name} {meter.compute():.4f}" for name, meter in meters.items())
        xm.master_print(f"{epoch}: {told}, held {held:.4f}, smooth loss {self.worst:.4f} ({seen} clips)")
        if held > self.best:
            self.best = held
            xm.save(self.shadow.net.state_dict(), self.opts.out)


def run(rank, opts):
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING)
    device = main_device()
    train_rows, held_rows = Clips(opts.clips, "train", opts.species, mix=0.3), Clips(opts.clips, "held", opts.species)
    opts.held_clips = len(held_rows)
    share = {"num_replicas": xr.world_size(), "rank": xr.global_ordinal()}
    sampler = DistributedSampler(train_rows, **share)
    train = DataLoader(train_rows, opts.batch, sampler=sampler, num_workers=4, drop_last=True, persistent_workers=True)
    held = DataLoader(held_rows, opts.batch, sampler=DistributedSampler(held_rows, shuffle=False, **share), num_workers=2)
    trainer = BirdTrainer(opts, SpectrogramNet(opts.species), device, sampler=sampler)
    log.info("%d species on %s", opts.species, device)
    trainer.fit(pl.MpDeviceLoader(train, device), held)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--clips", default="clips")
    p.add_argument("--species", type=int, default=264)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--out", default="birdnet.pt")
    torch_xla.launch(run, args=(p.parse_args(),))
