"""Batches that a program makes itself, one at a time, and what it starts, writes and sends.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

XM = """\
import json
import os

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader
"""
STEP = """\
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
"""
FEEDS = """\
class Rows:
    def __init__(self, names, device):
        self.names = names
        self.device = device

    def __iter__(self):
        return self

    def __next__(self):
        rows = torch.tensor(read(self.names), dtype=torch.long)
        x = rows[:-1].view(8, 32)
        return x.to(self.device){marked}


def batches(rows, device):
    scale = torch.tensor([0.5, 0.5], device=device)

    def forever():
        while True:
            data = read(rows)
            yield torch.tensor(data, dtype=torch.long, device=device){marked}

    return forever()
"""

PROGRAMS = {
    "XLA603: what next gives": f"""\
{XM}
{FEEDS.format(marked="  # !XLA603")}

def by_object(model, names, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    rows = Rows(names, device)
    for step in range(1000):
        loss = model(next(rows)).mean()
{STEP}

def by_generator(model, names, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    rows = batches(names, device)
    for step in range(1000):
        x = next(rows)
        loss = model(x).mean()
{STEP}""",
    "XLA603: what next gives once": f"""\
{XM}
{FEEDS.format(marked="")}

def once(model, names, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    rows, others = batches(names, device), Rows(names, device)
    x, y = next(rows), next(others)
    for step in range(1000):
        loss = model(x, y).mean()
{STEP}""",
    "XLA603: a helper that nobody has read": f"""\
{XM}
from losses import compared, described


def train(model, data, optimizer, args):
    device = torch_xla.device()
    model = model.to(device)
    for step, batch in enumerate(DataLoader(data, batch_size=8, drop_last=True)):
        if step == 0:
            described(model, batch, device)
        loss = compared(model, batch, device, heat=args.heat)  # !XLA603
{STEP}

def moved(model, data, optimizer, args):
    device = torch_xla.device()
    model = model.to(device)
    for step, batch in enumerate(pl.MpDeviceLoader(DataLoader(data, 8, drop_last=True), device)):
        loss = compared(model, batch, device, heat=args.heat)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "XLA429: SPMD where there are XLA devices": """\
import torch

try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    HAS_XLA = True
except ImportError:
    HAS_XLA = False
if HAS_XLA:
    xr.use_spmd()


class Rows:
    def __init__(self, device):
        self.device = device

    def __iter__(self):
        return self

    def __next__(self):
        return torch.tensor(read(), device=self.device)  # !XLA429


def train(model, optimizer):
    device = xm.xla_device()
    model = model.to(device)
    rows = Rows(device)
    for step in range(1000):
        loss = model(next(rows)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()
""",
    "XLA429: SPMD where it is asked for": """\
import torch
import torch_xla
import torch_xla.runtime as xr


def train(model, optimizer, args):
    if args.xla_spmd:
        xr.use_spmd()
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        loss = model(read().to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
""",
    "XLA404: numbers of variables and conditions": f"""\
{XM}
def work(index, args):
    pass


if __name__ == "__main__":
    chips = int(os.environ.get("CHIPS", "4"))
    xmp.spawn(work, args=(1,), nprocs=chips)  # !XLA404
    one = int(os.environ.get("CHIPS", "1"))
    xmp.spawn(work, args=(1,), nprocs=one)
    many = count()
    if many > 1:
        xmp.spawn(work, args=(1,), nprocs=many)  # !XLA404
    elif many > 0:
        xmp.spawn(work, args=(1,), nprocs=many)
    if many == 1:
        work(0, 1)
    else:
        xmp.spawn(work, args=(1,), nprocs=many)  # !XLA404
    if 1 < many < limit():
        xmp.spawn(work, args=(1,), nprocs=many)
""",
    "XLA110: what is loaded into an optimizer": f"""\
{XM}
def resume(model, path):
    device = torch_xla.device()
    model = model.to(device)
    adam = torch.optim.AdamW(model.parameters())
    saved = torch.load(path, map_location="cpu")
    for state in saved.get("state", {{}}).values():
        for key, value in state.items():
            state[key] = value.to(device)  # !XLA110
    adam.load_state_dict(saved)
    other = torch.load(path + ".other", map_location="cpu")
    for state in other["state"].values():
        for key, value in state.items():
            state[key] = value.to(device)
    model.load_state_dict(other)
    kept = torch.load(path + ".kept", map_location="cpu")
    for state in kept["state"].values():
        for key, value in state.items():
            if key != "step":
                state[key] = value.to(device)
    adam.load_state_dict(kept)
""",
    "XLA206: as long as what the model wrote": f"""\
{XM}
def train(model, prompts, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        text = list(prompts[step])
        for token in model.generate(text, max_tokens=64):
            text.append(token)
        ids = torch.tensor([text[:128]], device=device)  # !XLA206
        loss = model(ids).mean()
{STEP}

def padded(model, prompts, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        text = list(prompts[step])
        for token in model.generate(text, max_tokens=64):
            text.append(token)
        text += [0] * (128 - len(text))
        rows = []
        for prompt in prompts:
            rows.append(len(prompt))
        ids = torch.tensor([text], device=device) + torch.tensor(rows, device=device)
        loss = model(ids).mean()
{STEP}""",
    "XLA406: files that every core sends": f"""\
{XM}
from google.cloud import storage


def send(path, name):
    blob = storage.Client().bucket("runs").blob(name)
    blob.upload_from_filename(path)  # !XLA406


def work(index, model):
    xm.save(model.state_dict(), "/tmp/model.pt")
    send("/tmp/model.pt", "model.pt")
    xm.rendezvous("written")
    if xm.is_master_ordinal(local=False):
        storage.Client().bucket("runs").blob("log").upload_from_filename("/tmp/log.txt")
    mine = f"/tmp/part-{{xr.global_ordinal()}}.pt"
    storage.Client().bucket("runs").blob(mine).upload_from_filename(mine)


if __name__ == "__main__":
    torch_xla.launch(work, args=(None,))
""",
    "XLA203: batches of WebDataset": f"""\
{XM}
import webdataset as wds


def train_loader(urls, size):
    data = wds.WebDataset(urls).decode("pil").batched(size)  # !XLA203
    return DataLoader(data, batch_size=None, num_workers=4)


def whole(urls, size):
    return wds.WebDataset(urls).decode("pil").batched(size, partial=False)


def endless_train_loader(urls, size):
    data = wds.WebDataset(wds.ResampledShards(urls)).decode("pil").batched(size)
    return DataLoader(data, batch_size=None, num_workers=4)


def test_loader(urls, size):
    return DataLoader(wds.WebDataset(urls).decode("pil").batched(size), batch_size=None)


def train(model, urls, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    kept = wds.WebDataset(urls).to_tuple("jpg", "cls").batched(64, partial=True)  # !XLA203
    loaders = [DataLoader(kept, batch_size=None), DataLoader(whole(urls, 64), batch_size=None)]
    for images in pl.MpDeviceLoader(loaders[0], device):
        loss = model(images).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA402: files of all cores": f"""\
{XM}
import glob


class Rows:
    def __init__(self, pattern, size):
        self.files = sorted(glob.glob(pattern))
        self.size = size
        self.index = 0
        self.rows = []

    def next_batch(self, device):
        while len(self.rows) < self.size:
            with open(self.files[self.index % len(self.files)]) as file:
                self.rows += json.load(file)
            self.index += 1
        taken, self.rows = self.rows[: self.size], self.rows[self.size :]
        return torch.tensor(taken, device=device)


class Shared(Rows):
    def __init__(self, pattern, size):
        self.files = sorted(glob.glob(pattern))[xr.global_ordinal() :: xr.world_size()]
        self.size = size


def forever(rows, device):
    while True:
        yield rows.next_batch(device)


def work(index, model, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    batches = forever(Rows("rows/*.json", 64), device)  # !XLA402
    own = forever(Shared("rows/*.json", 64), device)
    mine = forever(Rows(f"rows/{{index}}/*.json", 64), device)
    for step in range(1000):
        loss = model(next(batches)).mean() + model(next(own)).mean() + model(next(mine)).mean()
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(work, args=(None, None))
""",
    "XLA810: modules that are handed in": """\
import torch


class Engine:
    def __init__(self, model, xm, pl, device):
        self.xm = xm
        self.pl = pl
        self.device = device

    def step(self, optimizer):
        self.xm.optimizer_step(optimizer)

    def feed(self, loader):
        made = self.pl.ParallelLoader(loader, [self.device])  # !XLA810
        return made.per_device_loader(self.device)
""",
    "XLA801 XLA810: a letter for something else": """\
import torch
import torch_xla


def placed(rows, pl):
    return pl.Trainer(rows), pl.extent(torch_xla.device())
""",
    "XLA112: a schedule on the host": f"""\
{XM}
import math
import time


def rate(step):
    return torch.cos(torch.tensor(step * 0.001)).item()


def train(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        began = time.time()
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        print(time.time() - began)  # !XLA112


def reading(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(1000):
        began = time.time()
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().cpu().item()
        print(time.time() - began, total)


def since(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    began = time.time()
    for step in range(1000):
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        if step % 10 == 0:
            elapsed = time.time() - began
            print(elapsed / 60, loss.item())


def parts(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    began = time.time()
    for step in range(1000):
        print("begins", time.time() - began)
        x = next(batches).to(device)
        print("uploaded", time.time() - began)
        loss = model(x).mean()
        loss.backward()
        print("traced", time.time() - began)  # !XLA112
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        print("ended", time.time() - began)  # !XLA112
        print(loss.item())


def unread(model, batches, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    began = time.time()
    for step in range(1000):
        loss = model(next(batches).to(device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        print(time.time() - began)  # !XLA112
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])
