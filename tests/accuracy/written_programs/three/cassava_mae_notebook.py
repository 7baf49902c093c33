#!/usr/bin/env python
# coding: utf-8

# # Cassava leaves: masked pretraining on all pictures, then finetuning on the labels
#
# TPU v3-8. Attach `cassava-leaf-disease-classification` and run everything.

# In[1]:

import math
import os
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.transforms as T
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

ROOT = "/kaggle/input/cassava-leaf-disease-classification"
SIZE, PATCH, DIM, DEPTH = 224, 16, 384, 8
GRID = SIZE // PATCH
N_TOKENS = GRID * GRID
N_HIDDEN = int(N_TOKENS * 0.75)
CLASSES = 5
SMOOTH = 0.1
SEED = 719

# In[2]:

table = pd.read_csv(f"{ROOT}/train.csv")
fold = np.random.RandomState(SEED).randint(0, 5, len(table))
train_df = table[fold != 0].reset_index(drop=True)
valid_df = table[fold == 0].reset_index(drop=True)

norm = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
aug = T.Compose([T.RandomResizedCrop(SIZE, scale=(0.4, 1.0)), T.RandomHorizontalFlip(), T.ToTensor(), norm])
plain = T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor(), norm])


class Leaves(Dataset):
    def __init__(self, df, tf, mask=False):
        self.names, self.labels = df.image_id.values, df.label.values
        self.tf, self.mask = tf, mask

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        img = self.tf(Image.open(f"{ROOT}/train_images/{self.names[i]}").convert("RGB"))
        if not self.mask:
            return img, int(self.labels[i])
        hidden = torch.zeros(N_TOKENS, dtype=torch.bool)
        hidden[torch.randperm(N_TOKENS)[:N_HIDDEN]] = True
        return img, hidden


# In[3]:

def sincos(n, dim):
    pos = torch.arange(n).float()[:, None]
    div = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(10000.0) / dim))
    out = torch.zeros(n, dim)
    out[:, 0::2], out[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
    return out[None]


def patchify(x):
    b = x.shape[0]
    x = x.reshape(b, 3, GRID, PATCH, GRID, PATCH)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, N_TOKENS, -1)


def blocks(dim, n, heads):
    layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, n, enable_nested_tensor=False)


class LeafViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH * PATCH, DIM)
        self.register_buffer("pos", sincos(N_TOKENS, DIM))
        self.trunk = blocks(DIM, DEPTH, 6)
        self.norm = nn.LayerNorm(DIM)
        self.bridge = nn.Linear(DIM, 192)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, 192))
        self.register_buffer("dec_pos", sincos(N_TOKENS, 192))
        self.decoder = blocks(192, 2, 6)
        self.to_pixels = nn.Linear(192, 3 * PATCH * PATCH)
        self.head = nn.Linear(DIM, CLASSES)

    def encode(self, img, hidden=None):
        x = self.embed(patchify(img)) + self.pos
        if hidden is not None:
            b, _, c = x.shape
            x = x[~hidden].reshape(b, -1, c)
        return self.norm(self.trunk(x))

    def reconstruct(self, img, hidden):
        seen = self.bridge(self.encode(img, hidden))
        # where each place finds its token in [seen..., mask]
        slot = (~hidden).long().cumsum(1) - 1
        slot = slot.masked_fill(hidden, 0)
        spread = torch.gather(seen, 1, slot[..., None].expand(-1, -1, seen.shape[-1]))
        full = torch.where(hidden[..., None], self.mask_token.to(spread.dtype), spread)
        return self.to_pixels(self.decoder(full + self.dec_pos))

    def forward(self, img):
        return self.head(self.encode(img).mean(1))


# In[4]:

@dataclass
class TrainState:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    ema_loss: torch.Tensor = None
    history: list = field(default_factory=list)

    def advance(self, loss):
        self.step += 1
        d = loss.detach()
        self.ema_loss = d if self.ema_loss is None else self.ema_loss * 0.98 + d * 0.02


class Core:
    @cached_property
    def device(self):
        return xm.xla_device()

    @cached_property
    def rank(self):
        return xr.global_ordinal()

    @property
    def world(self):
        return xr.world_size()

    @property
    def chief(self):
        return xm.is_master_ordinal()

    def loader(self, ds, bs, train, **kw):
        sampler = DistributedSampler(ds, num_replicas=self.world, rank=self.rank, shuffle=train)
        dl = DataLoader(ds, batch_size=bs, sampler=sampler, drop_last=train, **kw)
        return pl.MpDeviceLoader(dl, self.device), sampler


def say(step, loss, lr):
    print(f"[{step}] loss {loss:.4f} lr {lr:.2e}", flush=True)


# In[5]:

def pretrain(core, state, epochs):
    batches, sampler = core.loader(Leaves(table, aug, mask=True), 64, True, num_workers=4)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        state.model.train()
        for img, hidden in batches:
            state.optimizer.zero_grad()
            pixels = state.model.reconstruct(img, hidden)
            err = (pixels - patchify(img)).pow(2).mean(-1)
            loss = (err * hidden).sum() / hidden.sum()
            loss.backward()
            xm.optimizer_step(state.optimizer)
            state.advance(loss)
            if state.step % 100 == 0:
                xm.add_step_closure(say, args=(state.step, state.ema_loss, 1.5e-4))
        xm.master_print(f"pretrain epoch {epoch}: {state.step} steps")


class SmoothTargets(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("base", torch.full((1, CLASSES), SMOOTH / (CLASSES - 1)))

    def forward(self, y):
        rows = torch.arange(y.shape[0], device=y.device)
        target = self.base.expand(y.shape[0], -1)
        target[rows, y] = 1.0 - SMOOTH
        return target


def finetune(core, state, epochs):
    batches, sampler = core.loader(Leaves(train_df, aug), 32, True)
    valid, _ = core.loader(Leaves(valid_df, plain), 32, False, num_workers=2)
    soften = SmoothTargets().to(core.device)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(state.optimizer, epochs * len(batches))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        state.model.train()
        for img, y in batches:
            state.optimizer.zero_grad()
            logp = F.log_softmax(state.model(img), dim=-1)
            loss = -(soften(y) * logp).sum(-1).mean()
            loss.backward()
            xm.optimizer_step(state.optimizer)
            sched.step()
            state.advance(loss)
            if state.step % 50 == 0:
                xm.add_step_closure(say, args=(state.step, state.ema_loss.item(), sched.get_last_lr()[0]))
        acc = evaluate(core, state.model, valid)
        state.history.append(acc)
        xm.master_print(f"epoch {epoch} accuracy {acc:.4f}")


def evaluate(core, model, valid):
    model.eval()
    hits = torch.zeros((), device=core.device)
    seen = torch.zeros((), device=core.device)
    with torch.no_grad():
        for img, y in valid:
            hits += (model(img).argmax(-1) == y).sum()
            seen += y.numel()
    hits, seen = xm.all_reduce(xm.REDUCE_SUM, [hits, seen])
    return (hits / seen).item()


# In[6]:

def _mp_fn(index):
    core = Core()
    # other crops on every core
    torch.manual_seed(SEED + core.rank)
    np.random.seed(SEED + core.rank)

    net = LeafViT().to(core.device)
    state = TrainState(net, torch.optim.AdamW(net.parameters(), lr=1.5e-4, weight_decay=0.05))
    pretrain(core, state, epochs=20)
    xm.save(net.state_dict(), "pretrained.pt")

    state = TrainState(net, torch.optim.AdamW(net.parameters(), lr=3e-5, weight_decay=0.01))
    finetune(core, state, epochs=8)
    xm.mark_step()
    xm.save(net.state_dict(), "finetuned.pt")
    if core.chief:
        pd.DataFrame({"acc": state.history}).to_csv("history.csv", index=False)


# In[7]:

xmp.spawn(_mp_fn, args=(), start_method="fork")

# In[8]:

if os.path.exists("history.csv"):
    print(pd.read_csv("history.csv").tail())
