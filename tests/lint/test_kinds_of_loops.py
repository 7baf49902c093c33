"""Loops and steps by what they do: evaluation without no_grad, steps that another file calls.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "predict without no_grad": """\
HEAD
def predict(model, loader):
    device = xm.xla_device()
    model.to(device)
    out = []
    for x in loader:
        out.append(model(x.to(device)).cpu())  # !XLA101
    return out
""",
    "no_grad in the caller": """\
HEAD
def validate(model, loader, device):
    n = 0
    for x, y in loader:
        n += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()  # !XLA101
    return n
def main(model, val):
    device = xm.xla_device()
    model = model.to(device)
    model.eval()
    with torch.no_grad():
        validate(model, val, device)
""",
    "set_grad_enabled": """\
HEAD
def run(model, loader, optim, train):
    device = xm.xla_device()
    model = model.to(device)
    model.train(train)
    for x, y in loader:
        with torch.set_grad_enabled(train):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            if train:
                loss.backward()
                xm.optimizer_step(optim, barrier=True)
        total = loss.item()  # !XLA101
""",
    "eval of forward_with": """\
HEAD
def check(net, batches):
    device = xm.xla_device()
    net = net.to(device)
    net.eval()
    for b in batches:
        e = net.encode_image(b.to(device))
        print(e.norm().item())  # !XLA101
""",
    "fn given as argument": """\
HEAD
def one_epoch(step_fn, loader, device):
    for batch in loader:
        loss = step_fn(batch)
        print(loss.item())  # !XLA101
def main(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    def step(batch):
        loss = model(batch.to(device)).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        return loss
    one_epoch(step, loader, device)
""",
    "step in a class called through attribute": """\
HEAD
class Engine:
    def __init__(self, model, optim):
        self.device = xm.xla_device()
        self.model = model.to(self.device)
        self.optim = optim
    def train_step(self, batch):
        x, y = (t.to(self.device) for t in batch)
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        xm.optimizer_step(self.optim, barrier=True)
        return loss.item()  # !XLA101
    def fit(self, loader):
        for batch in loader:
            loss = self.train_step(batch)
""",
    "step called from another file": """\
HEAD
class Engine:
    def __init__(self, model, optim):
        self.device = xm.xla_device()
        self.model = model.to(self.device)
        self.optim = optim
    def train_step(self, batch):
        x, y = (t.to(self.device) for t in batch)
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        xm.optimizer_step(self.optim, barrier=True)
        return loss.item()  # !XLA101
""",
    "function step called from elsewhere": """\
HEAD
def train_step(model, optim, batch, device):
    x, y = (t.to(device) for t in batch)
    optim.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    xm.optimizer_step(optim, barrier=True)
    return loss.item()  # !XLA101
""",
    "amp context loop scaler": """\
HEAD
from timm.utils import NativeScaler
def train(model, loader, optim, loss_scaler):
    device = xm.xla_device()
    model = model.to(device)
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss_scaler(loss, optim)
        xm.mark_step()
        m = loss.item()  # !XLA101
""",
    "while loop with counter": """\
HEAD
def train(model, get, optim):
    device = xm.xla_device()
    model = model.to(device)
    step = 0
    while step < 1000:
        x, y = get()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        step += 1
        print(float(loss))  # !XLA102
""",
    "recursion comprehension": """\
HEAD
@torch.no_grad()
def scores(model, valid):
    device = xm.xla_device()
    model = model.to(device).eval()
    return [model(x.to(device)).argmax(1).cpu() for x in valid]  # !XLA101
""",
    "nested inference": """\
HEAD
@torch.inference_mode()
def scores(model, valid_batches):
    device = xm.xla_device()
    model = model.to(device).eval()
    for x, y in valid_batches:
        logits = model(x.to(device))
        for i in range(3):
            print(logits[i].max().item())  # !XLA101
""",
    "deep helper chain": """\
HEAD
class Meter:
    def __init__(self): self.s = 0
    def update(self, v): self.s += v
def f1(out): return f2(out)
def f2(out): return f3(out)
def f3(out): return f4(out)
def f4(out): return f5(out)
def f5(out): return out.mean().item()  # !XLA101
def train(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        f1(loss)
""",
}

#: What looks like it and is right.
HEALTHY = {
    "statistics of the data are computed on the CPU": """\
HEAD
def statistics(loader):
    total = 0.0
    for x, _ in loader:
        total += x.mean().item()
    return total
def main(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
""",
    "an evaluation that adds up on the device": """\
HEAD
def predict(model, loader):
    device = torch_xla.device()
    model.to(device)
    right = torch.zeros((), device=device)
    for x, y in pl.MpDeviceLoader(loader, device):
        right += (model(x).argmax(1) == y).sum()
    return right.item()
""",
    "a step that gives its loss back as it is": """\
HEAD
class Engine:
    def __init__(self, model, optim):
        self.device = torch_xla.device()
        self.model, self.optim = model.to(self.device), optim
    def train_step(self, batch):
        x, y = (t.to(self.device) for t in batch)
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        xm.optimizer_step(self.optim, barrier=True)
        return loss.detach()
""",
    "a step closure behind an early return": """\
HEAD
def log(step, loss):
    if step < 10: return
    print(step, loss.item())
def fit(model, loader, optim):
    device = torch_xla.device()
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        xm.add_step_closure(log, args=(step, loss))
""",
    "a reader on the last turn of the loop": """\
HEAD
def fit(model, loader, optim):
    device = torch_xla.device()
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        if step > 100:
            torch_xla.sync()
            print(loss.item())
            return
""",
    "one step by itself": """\
HEAD
def main():
    device = torch_xla.device()
    model = nn.Linear(2, 2).to(device)
    loss = model(torch.ones(2, 2, device=device)).sum()
    loss.backward()
    torch_xla.sync()
    print(loss.item())
main()
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = FAULTS[name].replace("HEAD\n", HEAD)
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    assert codes(HEALTHY[name].replace("HEAD\n", HEAD)) == []
