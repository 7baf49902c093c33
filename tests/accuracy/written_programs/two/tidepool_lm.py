"""
Pretrains a small decoder-only LM on packed uint16 tokens, then finetunes it on instruction pairs.

    python tidepool_lm.py data=/mnt/corpus phase.pretrain.steps=40000
"""
import os

os.environ.update(
    {
        "PJRT_DEVICE": "TPU",
        "XLA_TENSOR_ALLOCATOR_MAXSIZE": "100000000",
        "XLA_HLO_DEBUG": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
)

import json
import logging
import math
import sys
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed.parallel_loader import MpDeviceLoader

log = logging.getLogger("tidepool")

DEFAULTS = {
    "data": "/mnt/corpus",
    "out": "/mnt/runs",
    "model": {"vocab": 50304, "ctx": 1024, "layers": 12, "heads": 12, "dim": 768},
    "phase": {
        "pretrain": {"steps": 60000, "batch": 16, "lr": 6e-4, "warmup": 1000, "beta2": 0.95},
        "finetune": {"epochs": 3, "batch": 8, "lr": 3e-5, "warmup": 50, "beta2": 0.98},
    },
    "decay": 0.1,
    "clip": 1.0,
}


def namespace(tree):
    return SimpleNamespace(**{k: namespace(v) if isinstance(v, dict) else v for k, v in tree.items()})


def override(ns, argument):
    path, value = argument.split("=", 1)
    *parents, last = path.split(".")
    for name in parents:
        ns = getattr(ns, name)
    old = getattr(ns, last)
    setattr(ns, last, type(old)(value))


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads = m.heads
        self.pre, self.mid = nn.RMSNorm(m.dim), nn.RMSNorm(m.dim)
        self.qkv, self.join = nn.Linear(m.dim, 3 * m.dim, bias=False), nn.Linear(m.dim, m.dim, bias=False)
        self.up, self.down = nn.Linear(m.dim, 4 * m.dim, bias=False), nn.Linear(4 * m.dim, m.dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.pre(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.silu(self.up(self.mid(x))))


class Decoder(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.tok, self.pos = nn.Embedding(m.vocab, m.dim), nn.Embedding(m.ctx, m.dim)
        self.layers = nn.ModuleList(Layer(m) for _ in range(m.layers))
        self.norm = nn.RMSNorm(m.dim)
        self.out = nn.Linear(m.dim, m.vocab, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def tie(self):
        self.out.weight = self.tok.weight
        return self

    def forward(self, ids, targets):
        h = self.tok(ids) + self.pos(torch.arange(ids.size(1), device=ids.device))
        for layer in self.layers:
            h = layer(h)
        logits = self.out(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


@dataclass
class TrainState:
    model: Decoder
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR
    step: int = 0
    figures: dict = field(default_factory=dict)

    def snapshot(self):
        return {"net": self.model.state_dict(), "opt": self.optimizer.state_dict(), "step": self.step}


def new_state(model, cfg, phase, total):
    def shape(step):
        if step < phase.warmup:
            return (step + 1) / phase.warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (step - phase.warmup) / max(1, total - phase.warmup))))

    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": cfg.decay}, {"params": plain, "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=phase.lr, betas=(0.9, phase.beta2))
    return TrainState(model, opt, torch.optim.lr_scheduler.LambdaLR(opt, shape))


def update(state, ids, targets, cfg):
    loss = state.model(ids, targets)
    loss.backward()
    xm.reduce_gradients(state.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(state.model.parameters(), cfg.clip)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    state.schedule.step()
    state.step += 1
    state.figures.update(loss=loss.detach(), norm=norm, lr=state.schedule.get_last_lr()[0])


class Stream:
    def __init__(self, cfg, phase, device, seed):
        self.tokens = np.memmap(os.path.join(cfg.data, "train.bin"), dtype=np.uint16, mode="r")
        self.rng = np.random.default_rng(seed)
        self.ctx, self.rows, self.device = cfg.model.ctx, phase.batch, device

    def draw(self):
        starts = self.rng.integers(0, len(self.tokens) - self.ctx - 1, self.rows)
        block = np.stack([self.tokens[s : s + self.ctx + 1] for s in starts]).astype(np.int64)
        block = torch.from_numpy(block)
        return block[:, :-1].to(self.device), block[:, 1:].to(self.device)


class Dialogues(Dataset):
    def __init__(self, path, ctx):
        self.ctx = ctx
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ask, answer = self.rows[i]["prompt"], self.rows[i]["reply"]
        ids = (ask + answer)[: self.ctx + 1]
        goal = ([-1] * (len(ask) - 1) + answer)[: self.ctx]
        ids = torch.tensor(ids[:-1] + [0] * (self.ctx + 1 - len(ids)))
        return ids, torch.tensor(goal + [-1] * (self.ctx - len(goal)))


def pretrain(state, cfg, device, rank, where):
    feed = Stream(cfg, cfg.phase.pretrain, device, seed=100 + rank)
    while state.step < cfg.phase.pretrain.steps:
        ids, targets = feed.draw()
        update(state, ids, targets, cfg)
        torch_xla.sync()
        if rank == 0:
            log.info("pretrain %d %s", state.step, state.figures)
        if state.step % 5000 == 0:
            keep(state, where, f"base-{state.step}")


def finetune(state, cfg, device, rank, where):
    rows = Dialogues(os.path.join(cfg.data, "dialogues.jsonl"), cfg.model.ctx)
    sampler = DistributedSampler(rows, num_replicas=xr.world_size(), rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(rows, cfg.phase.finetune.batch, sampler=sampler, drop_last=True)
    for epoch in range(cfg.phase.finetune.epochs):
        sampler.set_epoch(epoch)
        for ids, targets in MpDeviceLoader(loader, device):
            update(state, ids, targets, cfg)
        last = xm.mesh_reduce("sft", state.figures["loss"].item(), np.mean)
        xm.master_print(f"finetune epoch {epoch}: {last:.3f}")
        keep(state, where, f"chat-{epoch}")


def keep(state, where, name):
    torch_xla.sync()
    if xr.global_ordinal() == 0:
        torch.save(state.snapshot(), os.path.join(where, name + ".pt"))
    xm.rendezvous("kept")


def main(index, cfg):
    torch.manual_seed(4321)
    device, rank = torch_xla.device(), xr.global_ordinal()
    if xm.is_master_ordinal(local=False):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        where = os.path.join(cfg.out, datetime.now().strftime("%m%d-%H%M"))
        os.makedirs(where, exist_ok=True)

    model = Decoder(cfg.model).to(device).tie()
    for name in ("pretrain", "finetune"):
        phase = getattr(cfg.phase, name)
        match name:
            case "pretrain":
                state = new_state(model, cfg, phase, phase.steps)
                pretrain(state, cfg, device, rank, where)
            case "finetune":
                state = new_state(model, cfg, phase, 2000)
                finetune(state, cfg, device, rank, where)


if __name__ == "__main__":
    settings = namespace(DEFAULTS)
    for argument in sys.argv[1:]:
        override(settings, argument)
    torch_xla.launch(main, args=(settings,))
