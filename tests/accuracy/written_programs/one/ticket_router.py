"""Routes support tickets to queues.  One process per TPU core."""
import argparse
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

PAD = 0
CURVE = {"step": [], "loss": [], "accuracy": 0.0}


def read_config():
    p = argparse.ArgumentParser()
    p.add_argument("--train", default="data/tickets.train.jsonl")
    p.add_argument("--dev", default="data/tickets.dev.jsonl")
    p.add_argument("--queues", type=int, default=23)
    p.add_argument("--per-core", type=int, default=64)
    p.add_argument("--max-steps", type=int, default=12_000)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--processes", type=int, default=int(os.environ.get("ROUTER_PROCESSES", 4)))
    p.add_argument("--out", default="runs/router")
    return p.parse_args()


class Tickets(Dataset):
    """The file holds ids that were made by the SentencePiece job, one ticket a line."""

    def __init__(self, path, limit=512):
        self.rows = []
        with open(path) as handle:
            for line in handle:
                row = json.loads(line)
                self.rows.append((row["ids"][:limit], int(row["queue"])))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        ids, queue = self.rows[at]
        return torch.tensor(ids), queue


def fuse(samples):
    texts, queues = zip(*samples)
    width = max(t.numel() for t in texts)
    block = torch.full((len(texts), width), PAD)
    for row, text in enumerate(texts):
        block[row, : text.numel()] = text
    return block, torch.tensor(queues)


class Router(nn.Module):
    def __init__(self, queues, vocab=32_000, width=384, depth=6, most=512):
        super().__init__()
        self.words = nn.Embedding(vocab, width, padding_idx=PAD)
        self.places = nn.Parameter(torch.zeros(1, most, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, queues)

    def forward(self, ids):
        empty = ids.eq(PAD)
        hidden = self.words(ids) + self.places[:, : ids.shape[1]]
        hidden = self.body(hidden, src_key_padding_mask=empty)
        kept = (~empty).unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
        return self.head(pooled)


@dataclass
class TrainState:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any
    step: int = 0
    epoch: int = 0
    started: float = field(default_factory=time.time)


def cosine(warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
    return factor


def make_step(state, clip):
    def step(ids, queues):
        state.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(state.model(ids), queues, label_smoothing=0.05)
        loss.backward()
        if clip > 0:
            nn.utils.clip_grad_norm_(state.model.parameters(), clip)
        xm.optimizer_step(state.optimizer)
        state.schedule.step()
        state.step += 1
        return loss.detach()
    return step


@torch.no_grad()
def dev_accuracy(model, loader):
    model.eval()
    right, seen = [], 0
    for ids, queues in loader:
        hits = model(ids).argmax(-1).eq(queues).sum()
        right.append(xm.mesh_reduce("dev-hits", hits, sum))
        seen += ids.shape[0] * xr.world_size()
    model.train()
    return (sum(right) / seen).item() if right else 0.0


def report(step, rate, loss):
    text = f"{step:>6} loss {loss.item():.4f}  {rate:.1f} steps/s"
    xm.master_print(text)


def main_on_core(index, cfg):
    torch.manual_seed(1234)
    device = torch_xla.device()
    model = Router(cfg.queues).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine(cfg.warmup, cfg.max_steps))
    state = TrainState(model, optimizer, schedule)

    parts = dict(num_replicas=xr.world_size(), rank=xr.global_ordinal())
    rows, dev_rows = Tickets(cfg.train), Tickets(cfg.dev)
    sampler = DistributedSampler(rows, shuffle=True, **parts)
    feed = DataLoader(rows, batch_size=cfg.per_core, sampler=sampler, collate_fn=fuse, num_workers=4)
    dev = DataLoader(dev_rows, batch_size=cfg.per_core, collate_fn=fuse, num_workers=2,
                     sampler=DistributedSampler(dev_rows, shuffle=False, **parts))
    device_feed, device_dev = pl.MpDeviceLoader(feed, device), pl.MpDeviceLoader(dev, device)

    step = make_step(state, cfg.clip)
    batches = iter(device_feed)
    model.train()
    while state.step < cfg.max_steps:
        batch = next(batches, None)
        if batch is None:
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            batches = iter(device_feed)
            continue
        loss = step(*batch)
        if state.step % 100:
            continue
        rate = state.step / (time.time() - state.started)
        xm.add_step_closure(report, args=(state.step, rate, loss))
        if state.step % 2000:
            continue
        accuracy = dev_accuracy(model, device_dev)
        CURVE["step"].append(state.step)
        CURVE["accuracy"] = max(CURVE["accuracy"], accuracy)
        xm.save(model.state_dict(), Path(cfg.out) / "last.pt")
    xm.rendezvous("finished")


def main():
    cfg = read_config()
    os.makedirs(cfg.out, exist_ok=True)
    xmp.spawn(main_on_core, args=(cfg,), nprocs=cfg.processes)
    if not CURVE["step"]:
        print("no evaluation was reached")
        return
    print(f"best accuracy {CURVE['accuracy']:.3f} of {len(CURVE['step'])} evaluations")


if __name__ == "__main__":
    main()
