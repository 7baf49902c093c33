"""What several cores do wrong and the linter was silent about, in the ways people write it.

All programs are invented. ``# !XLA402`` marks a line on which that rule has to find something; no
other line of a program may have a finding of a code that its name asks for. A name without codes
is of a healthy program.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

HEAD = """\
import itertools
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        return self.lin(x)
"""


STEP = """\
sgd.zero_grad()
net(x.to(device)).sum().backward()  # !XLA603
xm.optimizer_step(sgd, barrier=True)
"""


def _loop(*lines):
    """A program whose loop goes over a plain loader through a name."""
    inner = "    " * sum(line.endswith(":") for line in lines)
    body = "\n".join(lines) + "\n" + textwrap.indent(STEP, inner)
    return f"""\
{HEAD}
def train(index, data):
    torch.manual_seed(7)
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=8, drop_last=True)  # !XLA402
    for epoch in range(3):
{textwrap.indent(body, "        ")}
def main(data):
    torch_xla.launch(train, args=(data,))
"""


#: How a loader is wrapped before the loop, and the loop.
WRAPPED = {
    "enumerate": ("batches = enumerate(loader)", "for i, x in batches:"),
    "a bar of enumerate": ("bar = tqdm(enumerate(loader), total=9)", "for i, x in bar:"),
    "enumerate of a bar": ("bar = enumerate(tqdm(loader), 1)", "for i, x in bar:"),
    "with a bar": ("with tqdm(enumerate(loader)) as bar:", "    for i, x in bar:"),
    "zip": ("pairs = zip(loader, itertools.count())", "for x, i in pairs:"),
    "one or the other": (
        "bar = tqdm(enumerate(loader)) if xm.is_master_ordinal() else enumerate(loader)",
        "for i, x in bar:",
    ),
    "a name that is used again": (
        "bar = enumerate(range(3))",
        "print(index, list(bar))",
        "bar = enumerate(loader)",
        "for i, x in bar:",
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_loader_stays_one_through_the_name_of_what_wraps_it(name):
    program = _loop(*WRAPPED[name])
    told = {(row, code) for row, code in found(program) if code in {"XLA402", "XLA603"}}
    assert told == marks(program)


#: Programs of one file by the rules that they are about.
PROGRAMS = {
    "XLA424: the object's model, and its method on every core": f"""\
{HEAD}
class Runner:
    def __init__(self, data):
        self.data = data
        self.net = Net()
    def start(self):
        xmp.spawn(self.run)
    def run(self, index):
        net = self.net.to(torch_xla.device())  # !XLA424
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(self.data, torch_xla.device()):
            sgd.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(sgd)
Runner([]).start()
""",
    "XLA424: wrapped by another method": f"""\
{HEAD}
class Runner:
    def start(self, data):
        self.data = data
        self.net = xmp.MpModelWrapper(Net())
        xmp.spawn(self.run, args=(3,))
    def run(self, index, epochs):
        net = self.net.to(torch_xla.device())  # !XLA424
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(self.data, torch_xla.device()):
            sgd.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(sgd)
Runner().start([])
""",
    "XLA424: a global that the function that starts the cores makes": f"""\
{HEAD}
def run(index, data):
    global net
    net = net.to(torch_xla.device())  # !XLA424
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
def main(data):
    global net
    net = Net()
    xmp.spawn(run, args=(data,))
""",
    "XLA424: each core makes its own object": f"""\
{HEAD}
class Runner:
    def __init__(self, data):
        self.data = data
        self.net = Net()
    def run(self):
        net = self.net.to(torch_xla.device())
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(self.data, torch_xla.device()):
            sgd.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(sgd)
def start(index, data):
    torch.manual_seed(3)
    Runner(data).run()
xmp.spawn(start, args=([],))
""",
    "XLA424: each core makes it in the method that is started": f"""\
{HEAD}
class Runner:
    def __init__(self, data):
        self.data = data
        self.net = None
    def run(self, index):
        torch.manual_seed(3)
        self.net = Net()
        self.net.to(torch_xla.device())
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(self.data, torch_xla.device()):
            sgd.zero_grad()
            self.net(x).sum().backward()
            xm.optimizer_step(sgd)
runner = Runner([])
xmp.spawn(runner.run)
""",
    "XLA424: a global of each core": f"""\
{HEAD}
def run(index, data):
    global net
    torch.manual_seed(3)
    net = Net()
    net = net.to(torch_xla.device())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([],))
""",
    "XLA424: handed to the cores": f"""\
{HEAD}
def fit(given, data):
    net = given.to(torch_xla.device())  # !XLA424
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
def run(index, given, data):
    fit(given, data)
def main(data):
    net = Net()
    torch_xla.launch(run, args=(net, data))
""",
    "XLA424: handed to the cores in a dictionary, wrapped": f"""\
{HEAD}
def make():
    return xmp.MpModelWrapper(Net())
def run(index, given):
    net = given["net"]
    net = net.to(torch_xla.device())  # !XLA424
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(given["data"], torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
if __name__ == "__main__":
    settings = {{"net": make(), "data": open("data.txt")}}
    xmp.spawn(run, args=(settings,))
""",
    "XLA424: each core copies what it is handed": f"""\
import copy
{HEAD}
def run(index, given, data):
    net = copy.deepcopy(given)
    net = net.to(torch_xla.device())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
def main(data):
    torch_xla.launch(run, args=(Net(), data))
""",
    "XLA424: each core makes what another function moves": f"""\
{HEAD}
def make():
    torch.manual_seed(0)
    return Net()
def fit(given, data):
    net = given.to(torch_xla.device())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, torch_xla.device()):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
def run(index, data):
    fit(make(), data)
def main(data):
    print(make())
    torch_xla.launch(run, args=(data,))
""",
    "XLA420: by the norm of each core's own gradients": f"""\
{HEAD}
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if not torch.isfinite(norm):
            continue  # !XLA420
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([],))
""",
    "XLA420: by the norm as a number": f"""\
{HEAD}
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        norm = float(nn.utils.clip_grad_norm_(net.parameters(), 1.0))
        large = norm > 100
        if large:
            break  # !XLA420
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([],))
""",
    "XLA405: the step by the norm": f"""\
{HEAD}
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).item()
        if norm < 100:
            xm.optimizer_step(sgd)  # !XLA405
xmp.spawn(run, args=([],))
""",
    "XLA420 XLA405: by the norm of reduced gradients": f"""\
{HEAD}
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.reduce_gradients(sgd)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if not torch.isfinite(norm):
            continue
        sgd.step()
        xm.rendezvous("step")
xmp.spawn(run, args=([],))
""",
    "XLA420 XLA405: by the norm behind DDP": f"""\
{HEAD}
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    net = torch.nn.parallel.DistributedDataParallel(net)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if not torch.isfinite(norm):
            continue
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([],))
""",
    "XLA409: a rank that torchrun alone would set": f"""\
import os
{HEAD}
def shares(data):
    local = int(os.environ.get("LOCAL_RANK", 0))
    one = DistributedSampler(data, num_replicas=xr.world_size(), rank=local)  # !XLA409
    two = DistributedSampler(data, num_replicas=xr.world_size(), rank=0)  # !XLA409
    return one, two, DistributedSampler(data, num_replicas=2, rank=xr.global_ordinal())
def run(index, data):
    print(index, shares(data))
xmp.spawn(run, args=([],))
""",
    "XLA409: a rank that torch_xla.launch may find": f"""\
import os
{HEAD}
def run(index, data):
    local = int(os.environ["LOCAL_RANK"])
    print(index, DistributedSampler(data, num_replicas=xr.world_size(), rank=local))
torch_xla.launch(run, args=([],))
""",
    "XLA409: a rank that the program sets itself": f"""\
import os
{HEAD}
def run(index, data):
    os.environ["RANK"] = str(index)
    local = int(os.getenv("RANK", "0"))
    print(index, DistributedSampler(data, num_replicas=xr.world_size(), rank=local))
xmp.spawn(run, args=([],))
""",
    "XLA428 XLA429: SPMD by its variable": """\
import os
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
def run(index):
    print(index, torch_xla.device())
def main():
    os.environ.setdefault("XLA_USE_SPMD", "1")  # !XLA429
    dist.init_process_group("xla")
    xmp.spawn(run)
""",
    "XLA428: SPMD by its variable, if it is asked for": """\
import os
import sys
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
def run(index):
    print(index, torch_xla.device())
def main():
    if "--spmd" in sys.argv:
        os.environ["XLA_USE_SPMD"] = "1"
        return run(0)
    xmp.spawn(run)
def off():
    os.environ["XLA_USE_SPMD"] = "0"
    xmp.spawn(run)
""",
    "XLA401: a run of each core": f"""\
import wandb
{HEAD}
def run(index, args):
    wandb.init(project="nets", config=args)  # !XLA401
    wandb.init(project="nets", name=f"core {{index}}")
    wandb.init(project="nets", group="cores")
    if xm.is_master_ordinal():
        wandb.init(project="nets")
xmp.spawn(run, args=(None,))
""",
    "XLA406: what every core downloads to one place": f"""\
import os
import urllib.request
import gdown
{HEAD}
def run(index, url):
    urllib.request.urlretrieve(url, "data.zip")  # !XLA406
    gdown.download(url, output="more.zip")  # !XLA406
    urllib.request.urlretrieve(url, f"data_{{index}}.zip")
    if xm.is_master_ordinal():
        urllib.request.urlretrieve(url, "last.zip")
    xm.rendezvous("downloaded")
xmp.spawn(run, args=("http://localhost/data.zip",))
""",
    "XLA427: what the master's logger and writer tell": f"""\
import logging
from torch.utils.tensorboard import SummaryWriter
{HEAD}
logger = logging.getLogger("net")
def run(index, data):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = Net().to(device)
    cores = xr.world_size()
    shares = DistributedSampler(data, num_replicas=cores, rank=xr.global_ordinal(), shuffle=False)
    loader = DataLoader(data, batch_size=8, sampler=shares, drop_last=True)
    writer = SummaryWriter("logs") if index == 0 else None
    net.eval()
    right = 0
    with torch.no_grad():
        for x in pl.MpDeviceLoader(loader, device):
            right += (net(x) > 0).sum()
    rate = right.item() / len(data)
    if xm.is_master_ordinal():
        logger.info("rate %.3f", rate)  # !XLA427
        writer.add_scalar("rate", rate, 0)  # !XLA427
        logger.info("cores %d", cores)
xmp.spawn(run, args=([],))
""",
    "XLA416: counted from 1": """\
import torch_xla
import torch_xla.core.xla_model as xm
from joblib import Parallel, delayed
def fold(number, net):
    device = xm.xla_device(number + 1)  # !XLA416
    return net.to(device)
def folds(net):
    Parallel(n_jobs=4, backend="threading")(delayed(fold)(i, net) for i in range(4))
def other(net, fold):
    return net.to(torch_xla.device(1 + fold))  # !XLA416
def chosen(net, n):
    return net.to(torch_xla.device(n))
def last(net, n):
    return net.to(torch_xla.device(n - 1))
""",
    "XLA416: the core's own number": """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
def run(rank, net):
    one = torch_xla.device(rank)  # !XLA416
    two = xm.xla_device(n=xr.global_ordinal())  # !XLA416
    return net.to(one), net.to(two), net.to(torch_xla.device())
def main(net):
    torch_xla.launch(run, args=(net,))
""",
    "XLA426: a global of each core, before the seed, and a checkpoint now and then": f"""\
{HEAD}
def fit(rank, data, path):
    torch.manual_seed(11)
    device = torch_xla.device()
    NET.to(device)
    sgd = torch.optim.SGD(NET.parameters(), lr=0.1)
    if xm.is_master_ordinal():
        saved = find(path)
        if saved:
            NET.load_state_dict(torch.load(saved))  # !XLA426
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        NET(x).sum().backward()
        xm.optimizer_step(sgd)
def run(rank, data, path):
    global NET
    NET = Net()  # !XLA426
    fit(rank, data, path)
xmp.spawn(run, args=([], "x"))
""",
    "XLA426: what all cores load or do not start": f"""\
{HEAD}
def load(nets, path, skipped):
    saved = torch.load(path)
    for key in nets:
        if key in saved and key not in skipped:
            nets[key].load_state_dict(saved[key])
    return nets
def run(rank, data, path):
    torch.manual_seed(11 + rank)
    device = torch_xla.device()
    nets = {{"a": Net(), "b": Net()}}
    for key in nets:
        nets[key].to(device)
    if path:
        nets = load(nets, path, ())
    else:
        raise ValueError("weights are needed")
    sgd = torch.optim.SGD(nets["a"].parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        nets["a"](x).sum().backward()
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([], "x"))
""",
    "XLA426: a resume is none for a new run": f"""\
{HEAD}
def run(rank, data, path):
    torch.manual_seed(11 + rank)
    device = torch_xla.device()
    net = Net().to(device)  # !XLA426
    if path:
        net.load_state_dict(torch.load(path))
    else:
        print("from scratch", rank)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
xmp.spawn(run, args=([], "x"))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_file(name):
    program = PROGRAMS[name]
    asked = name.partition(":")[0].split()
    assert {(row, code) for row, code in found(program) if code in asked} == marks(program)


HEADED = "def make(n):\n    net = {}\n    net.fc = nn.Linear(2048, n)\n    return net"
#: Ways in which a program makes a model whose weights each core draws.
MADE = {
    "a dictionary of classes": ("NETS = {'a': Net, 'b': Wide}", "NETS[args.net]()"),
    "get": ("NETS = dict(a=Net, b=Wide)", "NETS.get(args.net)()"),
    "a name for the class": ("", "(Net if args.small else Wide)()"),
    "partial": ("make = functools.partial(Net)", "make()"),
    "getattr of torchvision": ("", "getattr(models, args.arch)(num_classes=10)"),
    "the dictionary of torchvision": ("", "models.__dict__[args.arch](num_classes=10)"),
    "a class that is handed on": ("def make(kind):\n    return kind()", "make(Net)"),
    "a ladder": (
        "def make(name):\n    if name == 'a':\n        return Net()\n    return Wide()",
        "make(args.net)",
    ),
    "a new last layer in a function": (
        HEADED.format("models.resnet50(pretrained=True)"),
        "make(10)",
    ),
    "a new last layer on what getattr gives": (
        HEADED.format("getattr(models, 'resnet50')(weights='DEFAULT')"),
        "make(10)",
    ),
}


def _drawn(defined, made, seed):
    return f"""\
import functools
from torchvision import models
{HEAD}
class Wide(Net):
    def forward(self, x):
        return self.lin(x).repeat(1, 2)
{defined}
def run(index, args, data):
    {seed}
    device = torch_xla.device()
    net = {made}
    net = net.to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in pl.MpDeviceLoader(data, device):
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
xmp.spawn(run, args=(None, []))
"""


@pytest.mark.parametrize("name", MADE)
def test_weights_of_each_core_whoever_makes_the_model(name):
    defined, made = MADE[name]
    told = [code for _, code in found(_drawn(defined, made, "print(index)")) if code == "XLA426"]
    assert len(told) == (2 if name == "a ladder" else 1)
    assert "XLA426" not in {
        code for _, code in found(_drawn(defined, made, "torch.manual_seed(1)"))
    }


def test_pretrained_weights_that_a_function_gives_back_are_equal():
    defined = "def make():\n    net = models.resnet50(pretrained=True)\n    return net"
    told = {code for _, code in found(_drawn(defined, "make()", "print(index)"))}
    assert "XLA426" not in told


def test_layers_that_a_helper_makes_of_a_class_are_parts_of_a_model():
    defined = """\
def rows(block, n):
    return nn.Sequential(*[block() for _ in range(n)])
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = rows(Net, 3)
    def forward(self, x):
        return self.body(x)
"""
    program = _drawn(defined, "Deep()", "print(index)")
    [row] = [row for row, code in found(program) if code == "XLA426"]
    assert program.splitlines()[row - 1].strip() == "net = Deep()"


FEED = """\
class Feed:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        for x in self.loader:
            yield x
"""
#: Ways in which a device loader, or a plain one, is handed on: what stands above, and the loop.
HANDED_ON = {
    "a generator": (
        "def batches(loader):\n    for x in loader:\n        yield x",
        "for x in batches(LOADER):",
    ),
    "a generator in enumerate": (
        "def batches(loader):\n    yield from loader",
        "for i, x in enumerate(batches(LOADER)):",
    ),
    "an endless one": (
        "def forever(loader):\n    while True:\n        for x in loader:\n            yield x",
        "batches = forever(LOADER)\n    for step in range(1000):\n        x = next(batches)",
    ),
    "an object": (
        FEED,
        "for x in Feed(LOADER):",
    ),
}


@pytest.mark.parametrize("name", HANDED_ON)
@pytest.mark.parametrize("on_device", [False, True])
def test_the_end_of_the_step_in_what_hands_the_batches_on(name, on_device):
    above, loop = HANDED_ON[name]
    loader = "pl.MpDeviceLoader(plain, device)" if on_device else "plain"
    program = f"""\
{HEAD}
{above}
def main(data):
    device = torch_xla.device()
    net = Net().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    plain = DataLoader(data, batch_size=8, drop_last=True)
    {loop.replace("LOADER", loader)}
        sgd.zero_grad()
        net(x.to(device)).sum().backward()
        sgd.step()
"""
    assert ("XLA301" in {code for _, code in found(program)}) is not on_device


DATA = """\
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler
def loaders(train, valid):
    cores = xr.world_size()
    sampler = DistributedSampler(train, num_replicas=cores, rank=xr.global_ordinal())  # !XLA403
    one = DataLoader(train, batch_size=8, sampler=sampler, drop_last=True)
    return one, DataLoader(valid, batch_size=8, drop_last=True)  # !XLA402
"""
STEPS = """\
import torch
import torch_xla.core.xla_model as xm
def train_epoch(net, sgd, batches):
    net.train()
    bar = enumerate(batches)
    for i, x in bar:
        sgd.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(sgd)
def valid_epoch(net, batches):
    net.eval()
    total = 0
    with torch.no_grad():
        for x in batches:
            total += net(x).sum()
    return total.item()
"""
MAIN = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from data import loaders
from steps import train_epoch, valid_epoch
def run(index, train, valid):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    one, two = loaders(train, valid)
    for epoch in range(3):
        SET
        train_epoch(net, sgd, pl.MpDeviceLoader(one, device))
        valid_epoch(net, pl.MpDeviceLoader(two, device))
torch_xla.launch(run, args=([], []))
"""
OPTIMIZERS = """\
import torch
class Several:
    def __init__(self, optimizers):
        self.optimizers = optimizers
    def zero_grad(self):
        for one in self.optimizers.values():
            one.zero_grad()
    def step(self, key):
        self.optimizers[key].step()  # !XLA302
def build(nets):
    return Several(MADE)
"""
SEVERAL = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from optimizers import build
def run(index, data):
    torch.manual_seed(0)
    device = torch_xla.device()
    nets = {"a": torch.nn.Linear(8, 8).to(device)}
    several = build(nets)
    for x in pl.MpDeviceLoader(data, device):
        several.zero_grad()
        nets["a"](x).sum().backward()
        REDUCE
        several.step("a")
torch_xla.launch(run, args=([],))
"""
SGD = "torch.optim.SGD(net.parameters(), lr=0.1)"

#: Programs of several files by the rules that they are about.
SEVERAL_FILES = {
    "XLA402 XLA403: loaders, steps and epochs in three files": {
        "data.py": DATA,
        "steps.py": STEPS,
        "main.py": MAIN.replace("SET", "pass"),
    },
    "XLA426: classes and a function of another file": {
        "nets.py": """\
import torch.nn as nn
import torchvision
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)
    def forward(self, x):
        return self.lin(x)
class Wide(Net):
    pass
NETS = {"net": Net, "wide": Wide}
def pretrained(n):
    net = torchvision.models.resnet18(pretrained=True)
    net.fc = nn.Linear(512, n)
    return net
""",
        "main.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import nets
from nets import NETS
def run(index, name, data):
    device = torch_xla.device()
    one = NETS[name](8).to(device)  # !XLA426
    two = nets.NETS[name](8).to(device)  # !XLA426
    three = nets.pretrained(10)
    three.to(device)  # !XLA426
    adam = torch.optim.Adam([*one.parameters(), *two.parameters(), *three.parameters()])
    for x in pl.MpDeviceLoader(data, device):
        adam.zero_grad()
        three(two(one(x))).mean().backward()
        xm.optimizer_step(adam)
torch_xla.launch(run, args=("net", []))
""",
    },
    "XLA426: a frozen, pretrained network of another file": {
        "nets.py": """\
import torch.nn as nn
import torchvision
class Features(nn.Module):
    def __init__(self, last):
        super().__init__()
        vgg = torchvision.models.vgg19(pretrained=True)
        self.layers = nn.Sequential(*list(vgg.features.children())[:last])
        for weight in self.layers.parameters():
            weight.requires_grad = False
    def forward(self, x):
        return self.layers(x)
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        return self.lin(x)
""",
        "main.py": """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from nets import Features, Generator
def run(index, data):
    device = torch_xla.device()
    net = Generator().to(device)  # !XLA426
    seen = Features(34).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x in pl.MpDeviceLoader(data, device):
        adam.zero_grad()
        (seen(net(x)) - seen(x)).abs().mean().backward()
        xm.optimizer_step(adam)
torch_xla.launch(run, args=([],))
""",
    },
    "XLA403: the epoch is set through the loader": {
        "data.py": DATA.replace("  # !XLA403", "").replace("  # !XLA402", ""),
        "steps.py": STEPS,
        "main.py": MAIN.replace("SET", "one.sampler.set_epoch(epoch)"),
    },
    "XLA403: the epoch is set where the steps are": {
        "data.py": DATA.replace("  # !XLA403", "").replace("  # !XLA402", ""),
        "steps.py": STEPS.replace("net.train()", "net.train(); batches.sampler.set_epoch(1)"),
        "main.py": MAIN.replace("SET", "pass"),
    },
    **{
        f"XLA302: optimizers of an object in another file, {what}": {
            "optimizers.py": OPTIMIZERS.replace("MADE", made),
            "main.py": SEVERAL.replace("REDUCE", "pass"),
        }
        for what, made in {
            "a comprehension": f"{{key: {SGD} for key, net in nets.items()}}",
            "pairs": f"dict([(key, {SGD}) for key, net in nets.items()])",
            "zipped": f"dict(zip(nets, [{SGD} for net in nets.values()]))",
        }.items()
    },
    "XLA302: reduced before": {
        "optimizers.py": OPTIMIZERS.replace("  # !XLA302", "").replace(
            "MADE", f"{{key: {SGD} for key, net in nets.items()}}"
        ),
        "main.py": SEVERAL.replace("REDUCE", "xm.reduce_gradients(several.optimizers['a'])"),
    },
}


@pytest.mark.parametrize("name", SEVERAL_FILES)
def test_over_several_files(name, tmp_path):
    files = SEVERAL_FILES[name]
    asked = name.partition(":")[0].split()
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)


def test_a_reduced_metric_may_be_logged():
    name = "XLA427: what the master's logger and writer tell"
    program = PROGRAMS[name].replace("right.item()", 'xm.mesh_reduce("right", right.item(), sum)')
    assert "XLA427" not in {code for _, code in found(program)}
