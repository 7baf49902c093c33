"""Steps behind decorators, batches that are asked for, what a pattern binds: told or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, told

XM = """\
import functools
import gzip
from collections import deque
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset
"""
BOOKS = (
    XM
    + """
class Books(Dataset):
    def __init__(self, files):
        self.files = files
    def __len__(self):
        return len(self.files)
    def __getitem__(self, i):
        with gzip.open(self.files[i], "rb") as f:
            return torch.frombuffer(f.read(), dtype=torch.uint8).float()
"""
)
STEP = """
        optimizer.zero_grad()
        model(batch.to(device)).mean().backward()
        optimizer.step()
        torch_xla.sync()
"""
READY = """
    device = torch_xla.device()
    model = nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PROGRAMS = {
    "XLA101 XLA104: what decorators of the program read around a step": XM
    + """
def watch(limit):
    def around(fn):
        count = [0]
        @functools.wraps(fn)
        def inner(engine, *args, **named):
            out = fn(engine, *args, **named)
            if out["loss"] > limit:  # !XLA104
                count[0] += 1
            return out
        return inner
    return around
def timed(fn):
    def inner(*args, **named):
        loss = fn(*args, **named)
        print(loss.item())  # !XLA101
        return loss
    return inner
def counted(fn):
    def inner(*args):
        inner.calls += 1
        return fn(*args)
    inner.calls = 0
    return inner
class Engine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
    @timed
    def step(self, batch):
        loss = self.model(batch).sum()
        loss.backward()
        xm.optimizer_step(self.optimizer)
        return loss
    @counted
    def other(self, batch):
        return self.model(batch).sum()
@watch(3.0)
def train_step(engine, batch, *, scale):
    engine.optimizer.zero_grad()
    loss = engine.model(batch).sum() * scale
    loss.backward()
    xm.optimizer_step(engine.optimizer)
    return {"loss": loss.detach()}
def main(loader):"""
    + READY
    + """
    engine = Engine(model, optimizer)
    for batch in pl.MpDeviceLoader(loader, device):
        train_step(engine, batch, scale=1.0)
    for batch in pl.MpDeviceLoader(loader, device):
        engine.step(batch)
        if engine.other(batch).isnan():  # !XLA104
            break
""",
    "XLA101 XLA104: what a pattern binds and its guard asks": XM
    + """
def main(loader, names):"""
    + READY
    + """
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        out = model(batch)
        loss = out.sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        match {"loss": loss, "name": names}:
            case {"loss": found, "name": [first, *_]} if found > 3:  # !XLA104
                print(first, found.item())  # !XLA101
            case _:
                pass
        match out, len(names):
            case (given, 3) as both:
                print(given.item())  # !XLA101
            case (_, count) if count > 3:
                print(count)
""",
    "XLA203 XLA606: batches that a step asks for with next": BOOKS
    + """
def main(files, steps):"""
    + READY
    + """
    loader = DataLoader(Books(files), batch_size=8)  # !XLA203 !XLA606
    turns = iter(loader)
    for step in range(steps):
        try:
            batch = next(turns)
        except StopIteration:
            turns = iter(loader)
            batch = next(turns)"""
    + STEP,
    "XLA203 XLA606: a helper that asks for them": BOOKS
    + """
def pull(turns, loader):
    try:
        return next(turns), turns
    except StopIteration:
        turns = iter(loader)
        return next(turns), turns
def main(files, kept, steps):"""
    + READY
    + """
    loader = DataLoader(Books(files), batch_size=8)  # !XLA203 !XLA606
    val_loader = DataLoader(Books(kept), batch_size=8)
    turns = iter(loader)
    for step in range(steps):
        batch, turns = pull(turns, loader)"""
    + STEP
    + """
    with torch.no_grad():
        for batch in val_loader:
            model(batch.to(device))
""",
    "XLA606: several of what a function with settings makes": BOOKS
    + """
class Core:
    def loader(self, data, **more):
        made = DataLoader(data, batch_size=8, drop_last=True, **more)
        return pl.MpDeviceLoader(made, torch_xla.device()), len(made)
def main(files, kept):"""
    + READY
    + """
    core = Core()
    first, count = core.loader(Books(files), num_workers=4)
    for batch in first:
        model(batch).mean().backward()
        optimizer.step()
    second, count = core.loader(Books(kept))  # !XLA606
    for batch in second:
        model(batch).mean().backward()
        optimizer.step()
""",
    "XLA105: NumPy and what keeps the losses": XM
    + """
RECENT = deque(maxlen=100)
def main(loader):"""
    + READY
    + """
    kept = list()
    numbers = deque()
    for step, batch in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        RECENT.append(loss.detach())
        kept.append(loss.detach())
        numbers.append(step)
    print(np.percentile(RECENT, 95))  # !XLA105
    print(np.quantile(kept, 0.9))  # !XLA105
    print(np.percentile(numbers, 95), np.median([loss.item() for loss in kept]))
    print(np.linalg.norm(loss.detach()))  # !XLA105
""",
    "XLA604: a constant of the host that a layer keeps": XM
    + """
import math
from math import pi
class Bank(nn.Module):
    def __init__(self, rate):
        super().__init__()
        t = torch.arange(400)
        self.wave = torch.cos(2 * math.pi * t) * torch.sin(np.pi * t) + torch.tanh(pi * t)
        self.last = nn.Linear(400, 1)
    def forward(self, x):
        return self.last(x * self.wave.to(x.device))  # !XLA604
def main(loader):
    device = torch_xla.device()
    model = Bank(3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
""",
    "XLA320: a frozen copy beside the model that evaluates": XM
    + """
import copy
def check(model, loader):
    model.eval()
    total = 0
    for batch in loader:  # !XLA320
        total = total + model(batch).sum()
    return total
def main(loader, kept):"""
    + READY
    + """
    copied = copy.deepcopy(model)
    copied.requires_grad_(False)
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
    print(check(model, pl.MpDeviceLoader(kept, device)))
""",
    "XLA320: the model that evaluates is frozen": XM
    + """
def main(loader, kept):"""
    + READY
    + """
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
    model.eval()
    model.requires_grad_(False)
    total = 0
    for batch in pl.MpDeviceLoader(kept, device):
        total = total + model(batch).sum()
""",
    "XLA406: a lambda that the program calls downloads": XM
    + """
import torchvision
import torch_xla.distributed.xla_multiprocessing as xmp
def flowers(root):
    get = lambda split: torchvision.datasets.Flowers102(root, split=split, download=True)  # !XLA406
    return get("train"), get("val")
def main(index, root):
    train, val = flowers(root)
    print(len(train), len(val))
if __name__ == "__main__":
    xmp.spawn(main, args=("data",))
""",
    "XLA422: a loader that Accelerate has prepared": """\
import torch_xla
from accelerate import Accelerator
from torch.utils.data import DataLoader
def main(data, model, optimizer):
    accelerator = Accelerator()
    plain = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, plain)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    print(len(plain.dataset), loader.batch_sampler, len(loader))
    print(len(loader.dataset))  # !XLA422
""",
    "XLA426: seeds of the device leave the weights alone": XM
    + """
import torch_xla.distributed.xla_multiprocessing as xmp
def main(index, loader):
    torch.manual_seed(1)
    torch_xla.manual_seed(1 + xr.global_ordinal())
    device = torch_xla.device()
    model = nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA426: a seed of the device alone": XM
    + """
import torch_xla.distributed.xla_multiprocessing as xmp
def main(index, loader):
    xm.set_rng_state(1)
    device = torch_xla.device()
    model = nn.Linear(8, 1).to(device)  # !XLA426
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA405: a helper that the master alone calls, behind a return": XM
    + """
import torch_xla.distributed.xla_multiprocessing as xmp
def over_cores(name, value):
    return xm.mesh_reduce(name, value, np.mean)
def report(rank, value):
    if rank != 0:
        return
    print(over_cores("value", value))  # !XLA405
def main(index):
    report(xr.global_ordinal(), 1.0)
    print(over_cores("other", 2.0))
if __name__ == "__main__":
    xmp.spawn(main)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)
