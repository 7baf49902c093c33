# %% [markdown]
# # Global wheat detection on TPU: one box per cell, ResNet-34
# Exported from the Kaggle editor; the cells are in order.

# %%
import os

os.environ.setdefault("PT_XLA_DEBUG", "1")
os.environ["OMP_NUM_THREADS"] = "4"

# %%
import ast
import functools
import threading

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision.io import read_image
from torchvision.ops import batched_nms, box_convert
from torchvision.transforms import v2

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

# %%
CFG = dict(
    seed=1977,
    side=512,
    stride=16,
    batch=16,
    epochs=25,
    lr=5e-4,
    fold=0,
    input="/kaggle/input/global-wheat-detection",
    weights="/kaggle/input/resnet34/resnet34-b627a593.pth",
)
GRID = CFG["side"] // CFG["stride"]

# %%
table = pd.read_csv(f"{CFG['input']}/train.csv")
table["bbox"] = table["bbox"].map(ast.literal_eval)
ids = sorted(table["image_id"].unique())
by_id = {k: np.array(g["bbox"].tolist(), dtype=np.float32) for k, g in table.groupby("image_id")}
folds = np.random.RandomState(0).randint(0, 5, len(ids))
train_ids, valid_ids = np.flatnonzero(folds != CFG["fold"]), np.flatnonzero(folds == CFG["fold"])


# %%
class Wheat(Dataset):
    def __init__(self, ids, augment):
        self.ids, self.augment = ids, augment
        self.jitter = v2.ColorJitter(0.2, 0.2, 0.2)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        name = self.ids[i]
        image = v2.functional.resize(read_image(f"{CFG['input']}/train/{name}.jpg"), [CFG["side"]] * 2, antialias=True)
        boxes = torch.from_numpy(by_id[name]) * (CFG["side"] / 1024)
        if self.augment:
            image = self.jitter(image)
            if np.random.rand() < 0.5:
                image = image.flip(-1)
                boxes[:, 0] = CFG["side"] - boxes[:, 0] - boxes[:, 2]
        boxes = box_convert(boxes, "xywh", "cxcywh")
        want, obj = torch.zeros(4, GRID, GRID), torch.zeros(GRID, GRID)
        col, row = (boxes[:, :2] / CFG["stride"]).long().clamp(0, GRID - 1).unbind(1)
        obj[row, col] = 1.0
        want[:, row, col] = (boxes / CFG["side"]).T
        return {"image": image.float() / 255, "want": want, "obj": obj, "heads": torch.tensor(float(len(boxes)))}


# %%
class Spotter(nn.Module):
    def __init__(self, weights):
        super().__init__()
        body = torchvision.models.resnet34(weights=None)
        body.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        self.body = nn.Sequential(*list(body.children())[:-3])
        self.head = nn.Sequential(nn.Conv2d(256, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 5, 1))

    def forward(self, image):
        out = self.head(self.body(image))
        return out[:, 0], out[:, 1:].sigmoid()


def cells_with_heads(batch):
    return batch["obj"].flatten().nonzero().squeeze(1)


def loss_of(model, batch, *, weight):
    score, box = model(batch["image"])
    rows = cells_with_heads(batch)
    near = lambda t: t.permute(0, 2, 3, 1).reshape(-1, 4).index_select(0, rows)
    bce = F.binary_cross_entropy_with_logits(score, batch["obj"], pos_weight=torch.tensor(4.0))
    return bce + weight * F.l1_loss(near(box), near(batch["want"]))


# %%
class Seat:
    """What this process knows of itself."""

    @functools.cached_property
    def device(self):
        return torch_xla.device()

    @functools.cached_property
    def rank(self):
        return xr.global_ordinal()

    @functools.cached_property
    def world(self):
        return xr.world_size()

    @property
    def first(self):
        return self.rank == 0


def in_background(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


# %%
def everyone(seat, figures):
    """The figures of all cores, one row each."""
    rows = torch.zeros(seat.world, figures.numel(), device=seat.device)
    rows[seat.rank] = figures
    return xm.all_reduce(xm.REDUCE_SUM, rows)


@torch.no_grad()
def validate(model, batches, seat):
    model.eval()
    seen = torch.zeros(3, device=seat.device)
    nowhere = torch.tensor([0.0, 0.0, 1.0, 1.0], device=seat.device)
    for batch in batches:
        score, box = model(batch["image"])
        top, at = score.sigmoid().flatten(1).topk(160)
        cand = box.flatten(2).gather(2, at.unsqueeze(1).expand(-1, 4, -1)).transpose(1, 2).reshape(-1, 4)
        which = torch.arange(len(score), device=seat.device).repeat_interleave(160)
        top = top.flatten()
        corners = box_convert(cand * CFG["side"], "cxcywh", "xyxy")
        corners = torch.where((top > 0.4).unsqueeze(1), corners, nowhere)
        keep = batched_nms(corners, top, which, 0.5)
        found = keep.numel() - len(score)
        seen += torch.stack([batch["heads"].sum(), batch["obj"].sum(), found - batch["heads"].sum()])
    model.train()
    rows = everyone(seat, seen)
    torch_xla.sync()
    return rows.cpu().numpy()


# %%
def run(index, cfg):
    seat = Seat()
    torch.manual_seed(cfg["seed"] + seat.rank)
    np.random.seed(cfg["seed"] + seat.rank)

    model = Spotter(cfg["weights"]).to(seat.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    step_loss = functools.partial(loss_of, model, weight=5.0)

    wheat = Wheat(ids, augment=True)
    train = DataLoader(
        wheat,
        cfg["batch"],
        sampler=SubsetRandomSampler(train_ids),
        num_workers=4,
        drop_last=True,
    )
    held = Subset(Wheat(ids, augment=False), valid_ids)
    valid = DataLoader(held, cfg["batch"], sampler=DistributedSampler(held, seat.world, seat.rank, shuffle=False))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg["epochs"])
    batches, checks = (pl.MpDeviceLoader(rows, seat.device) for rows in (train, valid))

    best, pending = np.inf, None
    for epoch in range(cfg["epochs"]):
        total, n = torch.zeros((), device=seat.device), 0
        for batch in batches:
            optimizer.zero_grad()
            loss = step_loss(batch)
            loss.backward()
            xm.optimizer_step(optimizer)
            total, n = total + loss.detach(), n + 1
        decay.step()
        table = validate(model, checks, seat)
        heads, cells, gap = table.sum(axis=0)
        xm.master_print(f"{epoch:02d} loss {total.item() / n:.4f} | {heads:.0f} heads, {gap:+.0f} off")
        if abs(gap) / heads < best:
            best = abs(gap) / heads
            state = {k: v.cpu() for k, v in model.state_dict().items()}
            if seat.first:
                pending = in_background(torch.save, state, "best.pt")
    if pending is not None:
        pending.join()


# %%
torch_xla.launch(run, args=(CFG,), start_method="fork")

# %%
state = torch.load("best.pt", map_location="cpu")
print(sum(v.numel() for v in state.values()) / 1e6, "M numbers")
