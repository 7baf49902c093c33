"""Quantile forecasts of electricity load. A small engine with hooks; one process per TPU core."""
import functools
import os
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


class NS(dict):
    __getattr__ = dict.__getitem__

    @classmethod
    def of(cls, tree):
        return cls({k: cls.of(v) if isinstance(v, dict) else v for k, v in tree.items()})


CONF = NS.of({
    "data": {"file": "/mnt/load/hourly.npy", "past": 336, "ahead": 48, "batch": 256, "workers": 4},
    "net": {"width": 256, "blocks": 4, "drop": 0.1},
    "optim": {"lr": 8e-4, "wd": 1e-4, "clip": 0.5, "amp": True, "epochs": 30},
    "quantiles": [0.1, 0.5, 0.9],
    "out": "/mnt/load/runs/q3",
    "spike": 4.0,
    "seed": 11,
})


class Windows(Dataset):
    def __init__(self, conf, lo, hi):
        self.rows = np.load(conf.file, mmap_mode="r")[int(lo * 26000):int(hi * 26000)]
        self.past, self.ahead = conf.past, conf.ahead
        self.meters = self.rows.shape[1]

    def __len__(self):
        return (len(self.rows) - self.past - self.ahead) // 24 * self.meters

    def __getitem__(self, i):
        day, meter = divmod(i, self.meters)
        cut = np.array(self.rows[day * 24:day * 24 + self.past + self.ahead, meter], dtype=np.float32)
        return torch.from_numpy(cut)


class Mixer(nn.Module):
    def __init__(self, past, ahead, width, blocks, drop, quantiles):
        super().__init__()
        self.ahead, self.q = ahead, quantiles
        self.enter = nn.Linear(past, width)
        self.body = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop),
                          nn.Linear(2 * width, width))
            for _ in range(blocks)
        ])
        self.leave = nn.Linear(width, ahead * quantiles)

    def forward(self, past):
        loc = past.mean(1, keepdim=True)
        scale = past.std(1, keepdim=True) + 1e-3
        h = self.enter((past - loc) / scale)
        for block in self.body:
            h = h + block(h)
        out = self.leave(h).view(-1, self.ahead, self.q)
        return out * scale[..., None] + loc[..., None]


def feed(loader, device, past):
    for rows in pl.MpDeviceLoader(loader, device):
        yield {"past": rows[:, :past], "future": rows[:, past:]}


def pinball(pred, truth, levels):
    q = torch.tensor(levels).to(pred.device)
    gap = truth[..., None] - pred
    return torch.maximum(q * gap, (q - 1) * gap).mean()


def watch_spikes(factor):
    """Counts the steps whose loss jumps; the count goes into the epoch's report."""
    def around(fn):
        tail = {"mean": None, "count": 0}

        @functools.wraps(fn)
        def inner(engine, *args, **kwargs):
            out = fn(engine, *args, **kwargs)
            now, before = out["loss"], tail["mean"]
            if before is None:
                tail["mean"] = now
                return out
            if now > factor * before:
                tail["count"] += 1
                engine.counters["spikes"] = tail["count"]
            tail["mean"] = 0.95 * before + 0.05 * now
            return out
        return inner
    return around


@watch_spikes(CONF.spike)
def train_step(engine, batch, *, clip, levels):
    engine.optimizer.zero_grad(set_to_none=True)
    with torch.autocast("xla", dtype=torch.bfloat16):
        pred = engine.model(batch["past"])
    loss = pinball(pred.float(), batch["future"], levels)
    engine.scaler.scale(loss).backward()
    xm.reduce_gradients(engine.optimizer)
    engine.scaler.unscale_(engine.optimizer)
    nn.utils.clip_grad_norm_(engine.model.parameters(), clip)
    engine.scaler.step(engine.optimizer)
    engine.scaler.update()
    return {"loss": loss.detach()}


class Engine:
    def __init__(self, conf, model, device):
        self.conf, self.model, self.device = conf, model, device
        self.rank, self.world = xr.global_ordinal(), xr.world_size()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=conf.optim.lr, weight_decay=conf.optim.wd)
        self.scaler = torch.amp.GradScaler("xla", enabled=conf.optim.amp)
        self.hooks = defaultdict(list)
        self.counters = {"spikes": 0}
        self.epoch, self.out, self.metrics = 0, None, {}

    def use(self, *parts):
        for part in parts:
            for name in ("after_batch", "after_epoch", "after_valid"):
                if (fn := getattr(part, name, None)) is not None:
                    self.hooks[name].append(fn)
        return self

    def fire(self, name):
        for fn in self.hooks[name]:
            fn(self)

    def fit(self, loader, valid, epochs):
        step = functools.partial(train_step, clip=self.conf.optim.clip, levels=self.conf.quantiles)
        past = self.conf.data.past
        for self.epoch in range(epochs):
            loader.sampler.set_epoch(self.epoch)
            self.model.train()
            for batch in feed(loader, self.device, past):
                self.out = step(self, batch)
                self.fire("after_batch")
            self.fire("after_epoch")
            self.metrics = self.validate(feed(valid, self.device, past))
            self.fire("after_valid")

    @torch.no_grad()
    def validate(self, batches):
        self.model.eval()
        err = torch.zeros((), device=self.device)
        size = torch.zeros((), device=self.device)
        for batch in batches:
            mid = self.model(batch["past"])[..., 1]
            err += (mid - batch["future"]).abs().sum()
            size += batch["future"].abs().sum()
        err, size = xm.all_reduce(xm.REDUCE_SUM, [err, size])
        return {"wape": err / size.clamp_min(1e-6)}


class Curve:
    def __init__(self):
        self.losses = []

    def after_batch(self, engine):
        self.losses.append(engine.out["loss"])

    def after_epoch(self, engine):
        engine.counters["train_loss"] = float(np.mean(self.losses))
        self.losses.clear()


class Board:
    def __init__(self, out):
        self.writer = SummaryWriter(out) if xr.global_ordinal() == 0 else None

    def after_valid(self, engine):
        if self.writer is None:
            return
        self.writer.add_scalar("valid/wape", engine.metrics["wape"].item(), engine.epoch)
        for key, value in engine.counters.items():
            self.writer.add_scalar(f"train/{key}", value, engine.epoch)


class Keep:
    def __init__(self, out):
        self.out = out

    def after_valid(self, engine):
        if engine.epoch % 5:
            return
        xm.save(engine.model.state_dict(), os.path.join(self.out, f"e{engine.epoch:03d}.pt"))


def run(index, conf):
    device = torch_xla.device()
    torch.manual_seed(conf.seed)
    d = conf.data
    model = Mixer(d.past, d.ahead, **conf.net, quantiles=len(conf.quantiles)).to(device)
    os.makedirs(conf.out, exist_ok=True)
    train, valid = Windows(d, 0.0, 0.85), Windows(d, 0.85, 1.0)
    shard = functools.partial(DistributedSampler, num_replicas=xr.world_size(), rank=xr.global_ordinal())
    loader = DataLoader(train, d.batch, sampler=shard(train, shuffle=True), num_workers=d.workers, drop_last=True)
    held = DataLoader(valid, d.batch, sampler=shard(valid, shuffle=False), num_workers=d.workers)
    engine = Engine(conf, model, device).use(Curve(), Board(conf.out), Keep(conf.out))
    engine.fit(loader, held, conf.optim.epochs)


if __name__ == "__main__":
    torch_xla.launch(run, args=(CONF,))
