"""Weights that each core makes, samples that each goes over, and steps that a scaler takes.

All programs are invented. ``# !XLA426`` marks a line on which that rule has to find something; a
program's name begins with the codes of which no other line may have a finding.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import os
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
"""
STEPS = """\
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        net(x).mean().backward()
        xm.optimizer_step(optimizer)
"""
#: A model at the top of a file, and how the cores are started.
AT_THE_TOP = """\
HEAD
from shop.nets import Denoiser
{before}
NET = {made}
def run(index, loader):
    torch.manual_seed(1)
    device = xm.xla_device()
    net = NET.to(device){mark}
STEPS
if __name__ == "__main__":
    xmp.spawn(run, args=(None,){how})
"""
WRAPPED = "xmp.MpModelWrapper(Denoiser(width=64))"
HERE = "  # !XLA426"

#: Each of a core's own program, with all that the named rules have to say of it.
PROGRAMS = {
    "XLA426: handed to what moves it": """\
HEAD
from shop.nets import Denoiser
def fit(net, loader):
    device = xm.xla_device()
    net = net.to(device)
STEPS
def run(index, loader):
    net = Denoiser(width=64)  # !XLA426
    fit(net, loader)
xmp.spawn(run, args=(None,))
""",
    "XLA426: handed to the object that trains it": """\
HEAD
from shop.nets import Denoiser
class Painter:
    def __init__(self, net, loader, device):
        self.device, self.loader = device, loader
        self.net = net.to(device)
        self.adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    def paint(self):
        for x in pl.MpDeviceLoader(self.loader, self.device):
            self.adam.zero_grad()
            self.net(x).mean().backward()
            xm.optimizer_step(self.adam)
def run(index, loader):
    Painter(Denoiser(width=64), loader, xm.xla_device()).paint()  # !XLA426
xmp.spawn(run, args=(None,))
""",
    "XLA426: seeded before it is handed over": """\
HEAD
from shop.nets import Denoiser
def fit(net, loader):
    device = xm.xla_device()
    net = net.to(device)
STEPS
def run(index, loader):
    torch.manual_seed(7)
    fit(Denoiser(width=64), loader)
xmp.spawn(run, args=(None,))
""",
    "XLA426: it may come with its weights": """\
HEAD
from shop.nets import Denoiser
def fit(net, loader):
    device = xm.xla_device()
    net = net.to(device)
STEPS
def run(index, loader, folder):
    fit(Denoiser(folder, checkpoint="last.pt"), loader)
xmp.spawn(run, args=(None, "out"))
""",
    "XLA426: as many classes as there are names": """\
HEAD
import timm
def run(index, loader, folder):
    device = xm.xla_device()
    names = sorted(os.listdir(folder))
    net = timm.create_model("resnet50", pretrained=True, num_classes=len(names))  # !XLA426
    net = net.to(device)
STEPS
xmp.spawn(run, args=(None, "flowers"))
""",
    "XLA426: as many classes as a setting says": """\
HEAD
import timm
def run(index, loader, args):
    device = xm.xla_device()
    net = timm.create_model("resnet50", pretrained=True, num_classes=args.num_classes)
    net = net.to(device)
STEPS
xmp.spawn(run, args=(None, None))
""",
    "XLA426: Ignite moves it and sends nothing": """\
HEAD
import ignite.distributed as idist
from ignite.utils import manual_seed
from torchvision import models
def get_net(name):
    make = models.__dict__[name]
    return idist.auto_model(make(num_classes=10))  # !XLA426
def training(core, config):
    manual_seed(config["seed"] + idist.get_rank())
    net = get_net(config["name"])
    adam = idist.auto_optim(torch.optim.Adam(net.parameters()))
    for x, y in idist.auto_dataloader(config["rows"], batch_size=8, drop_last=True):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
with idist.Parallel(backend="xla-tpu", nproc_per_node=8) as parallel:
    parallel.run(training, {"seed": 3, "name": "resnet18"})
""",
    "XLA426: spawned processes read the file again": AT_THE_TOP.format(
        before="", made=WRAPPED, how="", mark=HERE
    ),
    "XLA426: a bare model at the top": AT_THE_TOP.format(
        before="", made="Denoiser(width=64)", how=', start_method="spawn"', mark=HERE
    ),
    "XLA426: forked processes do not": AT_THE_TOP.format(
        before="", made=WRAPPED, how=', start_method="fork"', mark=""
    ),
    "XLA426: seeded where it is read": AT_THE_TOP.format(
        before="torch.manual_seed(3)", made=WRAPPED, how="", mark=""
    ),
    "XLA426: one process": AT_THE_TOP.format(before="", made=WRAPPED, how=", nprocs=1", mark=""),
    "XLA426: sent to the processes": """\
HEAD
from shop.nets import Denoiser
NET = xmp.MpModelWrapper(Denoiser(width=64))
def run(index, wrapped, loader):
    device = xm.xla_device()
    net = wrapped.to(device)
STEPS
if __name__ == "__main__":
    xmp.spawn(run, args=(NET, None))
""",
    "XLA402: it says its device and goes over all": """\
HEAD
def rows_of(path):
    print(f"reading {path} for {xm.xla_device()}")
    xm.master_print("core", xm.get_ordinal())
    return torch.load(path)
def run(index, net, paths):
    device = xm.xla_device()
    for path in paths:
        loader = DataLoader(rows_of(path), batch_size=64, shuffle=True, drop_last=True)  # !XLA402
STEPS
xmp.spawn(run, args=(None, ["a.pt"]))
""",
    "XLA402: it takes this core's rows": """\
HEAD
def rows_of(path):
    core = xm.get_ordinal()
    print(f"reading {path} for core {core}")
    return torch.load(path)[core::8]
def run(index, net, paths):
    device = xm.xla_device()
    for path in paths:
        loader = DataLoader(rows_of(path), batch_size=64, shuffle=True, drop_last=True)
STEPS
xmp.spawn(run, args=(None, ["a.pt"]))
""",
    "XLA402: a stream that can shuffle": """\
HEAD
class Lines(IterableDataset):
    def __init__(self, paths, shuffle=True, seed=0):
        self.paths, self.shuffle, self.seed = paths, shuffle, seed
    def line_generator(self):
        for path in self.paths:
            for idx, line in enumerate(open(path)):
                yield idx, line
    def __iter__(self):
        return self.line_generator()
def run(index, net, paths):
    device = xm.xla_device()
    loader = DataLoader(Lines(paths), batch_size=64, drop_last=True)  # !XLA402
STEPS
xmp.spawn(run, args=(None, ["a.txt"]))
""",
    "XLA402: a stream that draws": """\
HEAD
import random
class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = paths
    def __iter__(self):
        while True:
            yield open(random.choice(self.paths)).readline()
def run(index, net, paths):
    device = xm.xla_device()
    loader = DataLoader(Lines(paths), batch_size=64, drop_last=True)
STEPS
xmp.spawn(run, args=(None, ["a.txt"]))
""",
    "XLA402: streams of a function beside them, which draws or goes through all": """\
HEAD
class Rows(IterableDataset):
    def __init__(self, paths):
        self.paths = paths
class Drawn(IterableDataset):
    def __init__(self, make):
        self.make = make
    def __iter__(self):
        return draw(self.make)
class Read(Rows):
    def __iter__(self):
        return read(self.paths)
class Cut(Rows):
    def __iter__(self):
        yield from mine(self.paths)
def draw(rows):
    while True:
        yield rows[torch.randint(len(rows), (1,)).item()]
def read(paths):
    for path in paths:
        yield from open(path)
def mine(paths):
    for path in paths[xm.get_ordinal() :: xm.xrt_world_size()]:
        yield from open(path)
def run(index, net, paths):
    device = xm.xla_device()
    loader = DataLoader(Drawn(paths), batch_size=64)
STEPS
    loader = DataLoader(Cut(paths), batch_size=64)
STEPS
    loader = DataLoader(Read(paths), batch_size=64)  # !XLA402
STEPS
xmp.spawn(run, args=(None, ["a.txt"]))
""",
    "XLA402: a stream that is told a number": """\
HEAD
class Lines(IterableDataset):
    def __init__(self, paths, index):
        self.lines = open(paths[index])
    def __iter__(self):
        yield from self.lines
def run(index, net, paths):
    device = xm.xla_device()
    loader = DataLoader(Lines(paths, 0), batch_size=64, drop_last=True)
STEPS
xmp.spawn(run, args=(None, ["a.txt"]))
""",
    "XLA402: whoever goes over the device loader": """\
HEAD
from shop.trainers import TRAINERS
def run(index, kind):
    device = xm.xla_device()
    loader = DataLoader(torch.load("rows.pt"), batch_size=64, drop_last=True)  # !XLA402
    fed = pl.MpDeviceLoader(loader, device)
    TRAINERS[kind](fed).run()
xmp.spawn(run, args=("plain",))
""",
    "XLA402: whoever goes over the loader": """\
HEAD
from shop.trainers import TRAINERS
def run(index, kind):
    device = xm.xla_device()
    loader = DataLoader(torch.load("rows.pt"), batch_size=64, drop_last=True)
    TRAINERS[kind](loader, device).run()
xmp.spawn(run, args=("plain",))
""",
    "XLA301: a scaler takes the step": """\
HEAD
from torch.cuda.amp import GradScaler
def train(net, loader, adam, scaler: GradScaler, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        adam.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(adam)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(adam)  # !XLA301
        scaler.update()
device = torch_xla.device()
net = nn.Linear(8, 2).to(device)
adam = torch.optim.Adam(net.parameters())
scaler = GradScaler(enabled=device.type == "cuda")
train(net, DataLoader(torch.load("rows.pt"), batch_size=8), adam, scaler, device)
""",
    "XLA301: and the loop ends the graph": """\
HEAD
from torch.cuda.amp import GradScaler
def train(net, loader, adam, scaler, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        adam.zero_grad()
        scaler.scale(nn.functional.cross_entropy(net(x), y)).backward()
        scaler.step(adam)
        scaler.update()
        torch_xla.sync()
device = torch_xla.device()
net = nn.Linear(8, 2).to(device)
adam = torch.optim.Adam(net.parameters())
scaler = GradScaler(enabled=device.type == "cuda")
train(net, DataLoader(torch.load("rows.pt"), batch_size=8), adam, scaler, device)
""",
    "XLA301: one step in two loops is told once": """\
HEAD
def train(net, loader, adam, device):
    for x in loader:
        x = x.to(device)
        for _ in range(1):
            adam.zero_grad()
            net(x).mean().backward()
            adam.step()  # !XLA301
device = torch_xla.device()
net = nn.Linear(8, 2).to(device)
adam = torch.optim.Adam(net.parameters())
train(net, DataLoader(torch.load("rows.pt"), batch_size=8), adam, device)
""",
    "XLA604: a function within a method knows the object's device": """\
HEAD
class Painter:
    def __init__(self, adam, steps=100, device="cuda"):
        self.adam, self.steps, self.device = adam, steps, device
    def times(self, count):
        return torch.randint(low=1, high=self.steps, size=(count,))
    def paint(self, net, rows, epochs):
        def one_epoch(net, fed):
            for x in fed:
                self.adam.zero_grad()
                t = self.times(len(x)).to(self.device)  # !XLA604
                net(x, t).mean().backward()
                xm.optimizer_step(self.adam)
        for epoch in range(epochs):
            fed = pl.ParallelLoader(rows, [self.device])
            one_epoch(net, fed.per_device_loader(self.device))
""",
    "XLA604: which views are of one picture": """\
HEAD
def contrast(features, device):
    views = torch.cat([torch.arange(FLAGS["rows"]) for _ in range(2)], dim=0)
    same = (views.unsqueeze(0) == views.unsqueeze(1)).float()
    same = same.to(device)  # !XLA604
    return (features @ features.T * same).mean()
def run(index, net, loader):
    device = xm.xla_device()
    net = net.to(device)
    adam = torch.optim.Adam(net.parameters())
    for x in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        contrast(net(x), device).backward()
        xm.optimizer_step(adam)
FLAGS = {"rows": 64}
xmp.spawn(run, args=(None, None))
""",
    "XLA604: which views are of one picture, by the batch": """\
HEAD
def contrast(features, views, device):
    same = torch.cat([torch.tensor(one) for one in views])
    same = same.to(device)
    return (features * same).mean()
def run(index, net, loader):
    device = xm.xla_device()
    net = net.to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, views in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        contrast(net(x), views, device).backward()
        xm.optimizer_step(adam)
xmp.spawn(run, args=(None, None))
""",
    "XLA448: each core seeds by its number": """\
HEAD
import numpy as np
from sklearn.model_selection import train_test_split
def run(index, rows):
    np.random.seed(7 + index)
    train, test = train_test_split(rows, test_size=0.1)  # !XLA448
    xm.rendezvous("split")
xmp.spawn(run, args=(None,))
""",
    "XLA448: all cores seed alike": """\
HEAD
import numpy as np
from sklearn.model_selection import train_test_split
def run(index, rows):
    np.random.seed(7)
    train, test = train_test_split(rows, test_size=0.1)
    xm.rendezvous("split")
xmp.spawn(run, args=(None,))
""",
    "XLA418: the master shows a few": """\
HEAD
def show(net, data, device):
    net.eval()
    for i in range(min(6, len(data))):
        x, _ = data[i]
        with torch.no_grad():
            y = net(x.unsqueeze(0).to(device))
        print(y.cpu())
def judge(net, data, device):
    net.eval()
    for i in range(len(data)):
        x, _ = data[i]
        with torch.no_grad():
            y = net(x.unsqueeze(0).to(device))
        print(y.cpu())
def run(index, net, loader, data):
    device = xm.xla_device()
    net = net.to(device)
STEPS
    if index == 0:
        show(net, data, device)
    if index == 0:  # !XLA418
        judge(net, data, device)
xmp.spawn(run, args=(None, None, None))
""",
    "XLA501: torchvision smooths what it resizes": """\
HEAD
from torchvision import transforms
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF
class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3)
        self.fit = transforms.Resize((64, 64))
        self.rough = transforms.Resize((64, 64), antialias=False)
    def forward(self, x):
        x = self.rough(self.layer(x))
        x = self.fit(x)  # !XLA501
        x = TF.resize(x, [32, 32], interpolation=InterpolationMode.NEAREST)
        return TF.resize(x, [96, 96])  # !XLA501
def run(index, loader):
    device = xm.xla_device()
    torch.manual_seed(0)
    net = Painter().to(device)
STEPS
xmp.spawn(run, args=(None,))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_each_core_makes(name):
    program = PROGRAMS[name].replace("HEAD\n", HEAD).replace("STEPS\n", STEPS)
    assert told(name, program) == marks(program)
