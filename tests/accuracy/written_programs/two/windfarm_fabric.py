"""Short-term power forecasting for a wind farm (SCADA, 10-minute means), Lightning Fabric on TPU."""
import argparse
import functools
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl


@dataclass(frozen=True)
class Settings:
    root: str
    history: int = 144
    horizon: int = 18
    channels: int = 11
    width: int = 96
    batch: int = 256
    epochs: int = 40
    lr: float = 6e-4
    spike: float = 3.0
    workers: int = 4
    out: str = "runs/windfarm"


@dataclass
class TrainState:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    step: int = 0
    spikes: int = 0
    running: torch.Tensor | None = None
    curve: deque = field(default_factory=lambda: deque(maxlen=500))


class Turbines(Dataset):
    """Windows of all turbines; the arrays were normalised when they were exported."""

    def __init__(self, cfg: Settings, part: str):
        self.cfg = cfg
        with np.load(Path(cfg.root) / f"{part}.npz") as f:
            self.x = f["scada"].astype(np.float32)
            self.y = f["power"].astype(np.float32)
        self.per_turbine = self.x.shape[1] - cfg.history - cfg.horizon

    def __len__(self):
        return self.x.shape[0] * self.per_turbine

    def __getitem__(self, index):
        turbine, at = divmod(index, self.per_turbine)
        mid = at + self.cfg.history
        past = torch.from_numpy(self.x[turbine, at:mid])
        future = torch.from_numpy(self.y[turbine, mid : mid + self.cfg.horizon])
        return past, future


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.norm = nn.GroupNorm(8, width)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x):
        value, gate = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.out(self.norm(value * gate.sigmoid()))


class Forecaster(nn.Module):
    def __init__(self, cfg: Settings):
        super().__init__()
        self.stem = nn.Conv1d(cfg.channels, cfg.width, 1)
        self.blocks = nn.ModuleList([Block(cfg.width, 2**k) for k in range(6)])
        self.head = nn.Linear(cfg.width, 3 * cfg.horizon)
        self.register_buffer("q", torch.tensor([0.1, 0.5, 0.9]).view(1, 3, 1))

    def forward(self, past):
        h = self.stem(past.transpose(1, 2))
        for block in self.blocks:
            h = block(h)
        last = h[:, :, -1]
        return self.head(last).view(past.size(0), 3, -1)


def pinball(q, pred, target):
    gap = target.unsqueeze(1) - pred
    return torch.maximum(q * gap, (q - 1) * gap).mean()


def make_sets(cfg):
    return Turbines(cfg, "train"), Turbines(cfg, "valid")


def train_batches(cfg, rows):
    return DataLoader(rows, batch_size=cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers)


def valid_batches(cfg, rows, fabric):
    part = DistributedSampler(rows, fabric.world_size, fabric.global_rank, shuffle=False)
    return DataLoader(rows, batch_size=cfg.batch, sampler=part, num_workers=2)


def feed(fabric, batches):
    lanes = pl.ParallelLoader(batches, [fabric.device], fixed_batch_size=True)
    return lanes.per_device_loader(fabric.device)


def uploads():
    count, total, _ = met.metric_data("TransferFromServerTime")
    return count, total / 1e9


def watch_spikes(step):
    @functools.wraps(step)
    def wrapped(cfg, fabric, state, past, future):
        parts = step(cfg, fabric, state, past, future)
        now = parts["pinball"]
        if state.running is None:
            state.running = now
        elif now > cfg.spike * state.running:
            state.spikes += 1
        state.running = 0.98 * state.running + 0.02 * now
        return parts

    return wrapped


def counted(step):
    @functools.wraps(step)
    def wrapped(cfg, fabric, state, *batch):
        parts = step(cfg, fabric, state, *batch)
        state.step += 1
        state.curve.append(fabric.all_reduce(parts["pinball"], reduce_op="mean"))
        return parts

    return wrapped


@counted
@watch_spikes
def train_step(cfg, fabric, state, past, future):
    state.optimizer.zero_grad(set_to_none=True)
    pred = state.model(past)
    loss = pinball(state.model.q, pred, future)
    smooth = (pred[:, :, 1:] - pred[:, :, :-1]).abs().mean()
    fabric.backward(loss + 0.01 * smooth)
    state.optimizer.step()
    state.scheduler.step()
    return {"pinball": loss.detach(), "smooth": smooth.detach()}


@torch.no_grad()
def validate(cfg, fabric, state, rows):
    state.model.eval()
    total = torch.zeros(2, device=fabric.device)
    for past, future in feed(fabric, valid_batches(cfg, rows, fabric)):
        median = state.model(past)[:, 1]
        total[0] += (median - future).abs().sum()
        total[1] += future.numel()
    state.model.train()
    total = fabric.all_reduce(total, reduce_op="sum")
    return (total[0] / total[1]).item()


def save(cfg, fabric, state, score):
    kept = {"model": state.model, "optimizer": state.optimizer, "step": state.step, "mae": score}
    fabric.save(Path(cfg.out) / "best.ckpt", kept)


def run(fabric, cfg: Settings):
    fabric.seed_everything(11)
    train_set, valid_set = make_sets(cfg)
    model = Forecaster(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4000, gamma=0.5)
    model, optimizer = fabric.setup(model, optimizer)
    state = TrainState(model, optimizer, scheduler)

    best = float("inf")
    for epoch in range(cfg.epochs):
        began = time.time()
        for past, future in feed(fabric, train_batches(cfg, train_set)):
            train_step(cfg, fabric, state, past, future)
        mae = validate(cfg, fabric, state, valid_set)
        took = time.time() - began
        recent = torch.stack(list(state.curve)).mean().item()
        moved, seconds = uploads()
        fabric.print(
            f"epoch {epoch} | pinball {recent:.4f} | mae {mae:.4f} | spikes {state.spikes} "
            f"| reads {moved} ({seconds:.1f}s) | {took:.0f}s"
        )
        if mae < best:
            best = mae
            save(cfg, fabric, state, mae)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--out", default="runs/windfarm")
    args = ap.parse_args()
    cfg = Settings(root=args.root, epochs=args.epochs, out=args.out)
    fabric = Fabric(accelerator="tpu", devices="auto", precision="32-true")
    fabric.launch(run, cfg)


if __name__ == "__main__":
    main()
