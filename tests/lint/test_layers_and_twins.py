"""Layers that join, loaders side by side, twins for other devices, what starts hand to functions.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
PROGRAMS = {
    "XLA206: the layers of a dense block join what they are given": f"""\
{XM}
class Dense(torch.nn.Module):
    def __init__(self, depth, width, growth):
        super().__init__()
        sizes = [width + n * growth for n in range(depth)]
        self.layers = torch.nn.ModuleList(torch.nn.Conv2d(n, growth, 3, padding=1) for n in sizes)
    def forward(self, x):
        for layer in self.layers:
            x = torch.cat((x, layer(x)), dim=1)
        return x
class Writer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.net(x)
    def write(self, ids, length):
        for _ in range(length):
            ids = torch.cat((ids, self(ids)[:, -1:]), dim=1)  # !XLA206
            torch_xla.sync()
        return ids
def train(batches):
    device = torch_xla.device()
    net = Dense(4, 64, 32).to(device)
    writer = Writer().to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(net(x).mean((2, 3)), y).backward()
        xm.optimizer_step(adam)
    for x in pl.MpDeviceLoader(batches, device):
        writer.write(x, 20)
""",
    "XLA301: from the coarsest picture of a pyramid to the finest": f"""\
{XM}
class Pyramid(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.inner = torch.nn.ModuleList(torch.nn.Conv2d(n, 64, 1) for n in sizes)
        self.outer = torch.nn.ModuleList(torch.nn.Conv2d(64, 64, 3) for n in sizes)
    def forward(self, pictures):
        last = self.inner[-1](pictures[-1])
        found = [last]
        for n in range(len(self.sizes) - 2, -1, -1):
            last = self.inner[n](pictures[n]) + torch.nn.functional.interpolate(last, size=64)
            last = self.outer[n](last)
            found.insert(0, last)
        return found
def train(batches, steps):
    device = torch_xla.device()
    net = Pyramid([64, 128, 256]).to(device)
    cleaner = torch.nn.Conv2d(3, 3, 1).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        (net(x)[0] - y).square().mean().backward()
        xm.optimizer_step(adam)
    z = torch.randn(4, 3, 32, 32, device=device)
    with torch.no_grad():
        for n in range(steps - 1, -1, -1):  # !XLA301
            z = cleaner(z)
    return z.cpu()
""",
    "XLA402 XLA203: loaders that a loop goes over side by side": f"""\
{XM}
from torch.utils.data import DataLoader
def train(index, labelled, plain):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 2).to(device)
    adam = torch.optim.Adam(net.parameters())
    few = DataLoader(labelled, batch_size=16, shuffle=True, drop_last=True)  # !XLA402
    many = DataLoader(plain, batch_size=64, shuffle=True)  # !XLA402 !XLA203
    for number, ((x, y), z) in enumerate(zip(few, many)):
        adam.zero_grad()
        (net(x.to(device)).sum() + net(z.to(device)).sum()).backward()
        xm.optimizer_step(adam, barrier=True)
    shown = DataLoader(plain, batch_size=4)
    show(zip(shown, labelled))
if __name__ == "__main__":
    xmp.spawn(train, args=(data(), more()))
""",
    "XLA104: what a model gives back beside its loss, by keys": f"""\
{XM}
from model import Reasoner
def train(batches, settings):
    device = torch_xla.device()
    net = Reasoner(settings).to(device)
    adam = torch.optim.Adam(net.parameters())
    for batch in pl.MpDeviceLoader(batches, device):
        loss, told, done = net(batch)
        loss.backward()
        xm.optimizer_step(adam)
        if not told:
            continue
        if done:  # !XLA104
            break
        names = told.get("order") or sorted(told.keys())
        if any(told.get(name) or settings.all for name in names):
            print(loss.hidden_states or ())
        if any(told[name] > 3 for name in names):  # !XLA104
            break
        torch.stack([told[name] for name in names])
""",
    "XLA103 XLA104: of float16 alone, of caches, and texts for when a check fails": f"""\
{XM}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(8, 8)
    def forward(self, x, kept=None):
        if kept is not None and kept.get_seq_length(0) > 0:
            x = x + kept.layers[0].keys
        if x.dtype == torch.float16 and not torch.isfinite(x).all():
            x = torch.clamp(x, -1, 1)
        if x.dtype == torch.bfloat16 and not torch.isfinite(x).all():  # !XLA104
            x = torch.clamp(x, -1, 1)
        torch._check(x.shape[0] > 0, lambda: f"got {{x.sum()}}")
        torch._check(x.shape[0] > 0, f"got {{x.sum()}}")  # !XLA103
        return self.query(x).mean()
def train(batches):
    device = torch_xla.device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for batch in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(**batch).backward()
        xm.optimizer_step(adam)
""",
    "XLA404: a number of cores beside the GPUs that are there": f"""\
{XM}
import os
if "CUDA_VISIBLE_DEVICES" in os.environ:
    devices = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
else:
    devices = 8
one = 1 if devices else None
def train(index):
    print(xm.get_ordinal())
if __name__ == "__main__":
    xmp.spawn(train, nprocs=devices, start_method="fork")  # !XLA404
    xmp.spawn(train, nprocs=one)
""",
    "XLA101 XLA603: a function for TPUs beside its twin for GPUs": f"""\
{XM}
def train_model(net, batches, adam, device):
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        adam.step()
        print(loss.item())
def train_model_tpu(net, batches):
    device = torch_xla.device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in pl.MpDeviceLoader(batches, device):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        print(loss.item())  # !XLA101
""",
    "XLA101 XLA603 and of one that the other calls": f"""\
{XM}
def train(net, batches, adam, device):
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))  # !XLA603
        loss.backward()
        xm.optimizer_step(adam, barrier=True) if adam else adam.step()
        print(loss.item())  # !XLA101
def tpu_train(net, batches):
    device = torch_xla.device()
    net.to(device)
    train(net, batches, torch.optim.Adam(net.parameters()), device)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_found(name):
    asked = name.partition(":")[0].split()
    told = {(row, code) for row, code in found(PROGRAMS[name]) if code in asked}
    assert told == {(row, code) for row, code in marks(PROGRAMS[name]) if code in asked}


PROJECTS = {
    "XLA701: a flag for TPUs in a file of settings that is taken whole": {
        "settings.py": """\
import os
USE_TPU = os.environ.get("COLAB_TPU_ADDR", False)  # !XLA701
ADDRESS = os.environ.get("COLAB_TPU_ADDR")
SEED = 7
""",
        "train.py": """\
from helpers import *
from settings import *
if os.environ.get("COLAB_TPU_ADDR"):  # !XLA701
    import torch_xla.core.xla_model as xm
def device():
    if USE_TPU:
        return xm.xla_device()
    print(ADDRESS)
""",
    },
    "XLA905: arguments of a class of the program that is built on them": {
        "train.py": """\
import torch_xla.distributed.xla_multiprocessing as xmp
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
@dataclass
class ScriptArguments(TrainingArguments):
    name: str = field(default="gpt2")
@dataclass
class Settings:
    per_device_train_batch_size: int = 8
    tpu_num_cores: int = 8
def train(index, settings, samples):
    args = ScriptArguments(  # !XLA905
        output_dir="out",
        per_device_train_batch_size=8,
        tpu_num_cores=settings.tpu_num_cores,  # !XLA905
        optim="adamw_torch",
        seed=1,
    )
    Trainer(AutoModelForCausalLM.from_pretrained(args.name), args, train_dataset=samples).train()
if __name__ == "__main__":
    xmp.spawn(train, args=(Settings(tpu_num_cores=8), samples()))
""",
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    files = PROJECTS[name]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)
