"""What the master and step closures do, and what each core is given, in several spellings.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

STEP = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101 XLA113: the last step of an epoch, by name": """\
def fit(net, adam, batches, crit, every, note):
    where = torch_xla.device()
    net.to(where)
    final = len(batches) - 1
    for n, (x, y) in enumerate(pl.MpDeviceLoader(batches, where)):
        at_end = n == final
        adam.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        xm.mark_step()
        if at_end or n % every == 0:
            note(loss.item())
        if n != final:
            note(loss.item())  # !XLA101
""",
    "XLA721: what is saved where no XLA device is": """\
import settings
def keep(net, path):
    where = torch_xla.device()
    net = net.to(where)
    if settings.USE_TPU:
        xm.save(net.state_dict(), path)
    else:
        torch.save(net.state_dict(), path)
    torch.save(net.state_dict(), path)  # !XLA721
""",
    "XLA721: moved back by a name": """\
def keep(net, path):
    where = torch_xla.device()
    net = net.to(where)
    torch.save(net.state_dict(), path)  # !XLA721
    where = torch.device("cpu")
    net = net.to(where)
    torch.save(net.state_dict(), path)
""",
    "XLA721: moved to the device by a name": """\
def keep(net, path):
    where = torch.device("cpu")
    net = net.to(where)
    where = torch_xla.device()
    net = net.to(where)
    torch.save(net.state_dict(), path)  # !XLA721
""",
    "XLA401 XLA405: who is the master, asked of a file that nobody has read": """\
import helpers.dist as dist
from helpers.dist import is_master
def work(index, net, adam, batches, ask):
    where = torch_xla.device()
    net.to(where)
    for x, y in pl.MpDeviceLoader(batches, where):
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
        if dist.is_main_process():
            print("one more")
        if dist.get_rank() == 0:
            xm.mesh_reduce("seen", len(x), sum)  # !XLA405
        if dist.is_initialized():
            print("one more")  # !XLA401
    if is_master(ask):
        xm.rendezvous("end")  # !XLA405
torch_xla.launch(work, args=(1, 2, 3, 4))
""",
    "XLA418 XLA101: an evaluation in a step closure": """\
from helpers.dist import is_master
def on_tpu():
    return torch_xla is not None
def use_xla():
    return on_tpu()
def after(net, crit, batches, ask):
    check(net, crit, batches, ask)
def check(net, crit, batches, ask):
    if not is_master(ask):  # !XLA418
        return
    net.eval()
    with torch.no_grad():
        for x, y in batches:
            made = net(x.to(torch.device(ask.device)))
            ask.keep(made.cpu())  # !XLA101
def fit(net, crit, batches, adam, ask):
    where = torch.device(ask.device)
    net.to(where)
    for x, y in batches:
        loss = crit(net(x.to(where)), y.to(where))
        loss.backward()
        xm.optimizer_step(adam)
        xm.mark_step()
        if not use_xla():
            after(net, crit, batches, ask)
        else:
            xm.add_step_closure(after, (net, crit, batches, ask))
""",
    "XLA423: the cores meet in a step closure": """\
def fit(net, adam, batches, crit, note):
    where = torch_xla.device()
    net.to(where)
    for n, (x, y) in enumerate(pl.MpDeviceLoader(batches, where)):
        adam.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        def tell():
            note(xm.mesh_reduce("loss", loss.item(), sum))  # !XLA423
        xm.add_step_closure(tell)
        def seldom():
            note(xm.mesh_reduce("loss", loss.item(), sum))
        if n % 100 == 0:
            xm.add_step_closure(seldom)
""",
    "XLA308: reduced into the name of a loop": """\
def mean_of(t, cores):
    out = t.clone()
    out = xm.all_reduce(xm.REDUCE_SUM, out)
    return out / cores
def into_place(t, cores):
    t.copy_(xm.all_reduce(xm.REDUCE_SUM, t) / cores)
    return t
def spread(net, cores, kept):
    for name, stat in net.named_buffers():
        if "running" in name:
            stat = mean_of(stat, cores)  # !XLA308
    for weight in net.parameters():
        weight = xm.all_reduce(xm.REDUCE_SUM, weight.data)  # !XLA308
    for weight in net.parameters():
        weight = xm.all_reduce(xm.REDUCE_SUM, weight.data)
        kept.append(weight)
    for stat in net.buffers():
        stat = into_place(stat, cores)
""",
    "XLA603: arrays beside a device loader": """\
import numpy as np
from torch.autograd import Variable
def fit(net, adam, batches, cut):
    where = torch_xla.device()
    net.to(where)
    for names, waves, x in pl.MpDeviceLoader(batches, where):
        parts = []
        for wave in waves:
            parts.append(torch.from_numpy(cut(wave)).to(where))  # !XLA603
        loss = net(torch.stack(parts), x)
        loss.backward()
        xm.optimizer_step(adam)
def check(net, batches):
    where = torch_xla.device()
    net.to(where).eval()
    with torch.no_grad():
        for names, x in pl.MpDeviceLoader(batches, where):
            wanted = torch.as_tensor(np.array(names), device=where)  # !XLA603
            net(x, wanted, torch.tensor([1.0, 2.0], device=where))
def learn(net, adam, batches):
    where = torch_xla.device()
    net.to(where)
    scale = torch.from_numpy(np.ones(3)).to(where)
    for n, (names, x) in enumerate(pl.MpDeviceLoader(batches, where)):
        swapped = Variable(torch.from_numpy(np.array(names)).float())
        wanted = swapped.to(where)  # !XLA603
        place = torch.tensor(n).to(where)
        loss = net(x, wanted, place) * scale
        loss.backward()
        xm.optimizer_step(adam)
""",
    "XLA402: a method gives this core's part": """\
from torch.utils.data import DataLoader
class Run:
    def __init__(self, parts):
        self.parts = parts
    def part(self, parts):
        mine = parts[torch_xla.runtime.global_ordinal()]
        return self.read(mine)
    def whole(self, parts):
        return self.read(parts)
    def work(self, index):
        where = torch_xla.device()
        net = torch.nn.Linear(2, 2).to(where)
        adam = torch.optim.Adam(net.parameters())
        data = self.part(self.parts).shuffle(8)
        for x in pl.MpDeviceLoader(DataLoader(data, 8, drop_last=True), where):
            net(x).sum().backward()
            xm.optimizer_step(adam)
        others = self.whole(self.parts)
        for x in pl.MpDeviceLoader(DataLoader(others, 8, drop_last=True), where):  # !XLA402
            net(x).sum().backward()
            xm.optimizer_step(adam)
    def start(self):
        torch_xla.launch(self.work)
""",
    "XLA418: evaluated on the master, and elsewhere on all cores": """\
def check(net, batches):
    net.eval()
    with torch.no_grad():
        for x in batches:
            net(x)
def work(index, net, adam, batches, ask):
    where = torch_xla.device()
    net.to(where)
    if ask.train:
        for epoch in range(ask.epochs):
            for x in pl.MpDeviceLoader(batches, where):
                net(x).sum().backward()
                xm.optimizer_step(adam)
            if xm.is_master_ordinal():  # !XLA418
                check(net, pl.MpDeviceLoader(batches, where))
    else:
        check(net, pl.MpDeviceLoader(batches, where))
torch_xla.launch(work, args=(1, 2, 3, 4))
""",
    "XLA426: a model that gets another name, and is moved in place": """\
from nets.big import *
class Run:
    def __init__(self, ask, where=None):
        if where is not None:
            self.where = where
        else:
            self.where = torch.device("cpu")
        net = BigNet(3)
        net.to(self.where)  # !XLA426
        self.net = net
        chosen = filter(lambda p: p.requires_grad, self.net.parameters())
        self.adam = torch.optim.Adam(chosen, lr=0.1)
    def train(self, batches):
        for x in pl.MpDeviceLoader(batches, self.where):
            self.net(x).sum().backward()
            xm.optimizer_step(self.adam)
def work(index, ask):
    run = Run(ask, where=torch_xla.device())
    run.train(ask.batches)
torch_xla.launch(work, args=(1,))
""",
    "XLA425: the master writes down what waits": """\
from torch.utils.tensorboard import SummaryWriter
def work(rank, net, adam, batches, crit, ask):
    where = torch_xla.device()
    net.to(where)
    board = SummaryWriter(ask.folder) if rank == 0 else None
    for n, (x, y) in enumerate(pl.MpDeviceLoader(batches, where)):
        adam.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        if rank == 0 and n % ask.every == 0:
            board.add_scalar("loss", loss, n)  # !XLA425
            board.add_scalar("loss", loss.detach(), global_step=n)  # !XLA425
            board.add_scalar("loss", loss.item(), n)
            board.add_scalar("loss", loss / ask.every, n)
            board.add_scalars("all", {"loss": loss, "n": n}, n)  # !XLA425
        if rank == 0:
            xm.add_step_closure(board.add_scalar, args=("loss", loss, n))
        torch_xla.sync()
        if rank == 0:
            board.add_scalar("loss", loss, n)
torch_xla.launch(work, args=(None, None, None, None, None))
""",
    "XLA425: the master saves while the reduction waits": """\
def work(rank, ask):
    where = torch_xla.device()
    torch.manual_seed(3)
    net = torch.nn.Linear(4, 4).to(where)
    adam = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
    for n, x in enumerate(pl.MpDeviceLoader(ask.batches, where)):
        net(x).sum().backward()
        xm.optimizer_step(adam)
        adam.zero_grad()
        if n > 8 and n % ask.every == 0 and rank == 0:  # !XLA425
            torch.save(net.state_dict(), ask.path)
        if n % ask.every == 1 and rank == 0:  # !XLA425
            state = {"adam": adam.state_dict(), "n": n}
            torch.save(state, ask.path)
        if n % ask.every == 2 and rank == 0:
            torch.save({"n": n}, ask.path)
        xm.mark_step()
        if n % ask.every == 3 and rank == 0:
            torch.save(net.state_dict(), ask.path)
    if rank == 0:
        torch.save(net.state_dict(), ask.path)
torch_xla.launch(work, args=(1,))
""",
    "XLA312: checkpointing that a model turns on": """\
from transformers import AutoModelForCausalLM
from torch_xla.utils.checkpoint import checkpoint
def work(ask, batches):
    where = torch_xla.device()
    net = AutoModelForCausalLM.from_config(ask.config)
    if ask.small_memory:
        net.gradient_checkpointing_enable()  # !XLA312
    ask.unet.enable_gradient_checkpointing()  # !XLA312
    ask.vae.enable_gradient_checkpointing(checkpoint)
    if not ask.use_tpu:
        net.gradient_checkpointing_enable()
    net.to(where)
""",
    "XLA312: checkpointing that is turned on where a model has it": """\
from typing import Any, cast
class Own(torch.nn.Module):
    def gradient_checkpointing_enable(self):
        self.small = True
def work(net, other, third):
    where = torch_xla.device()
    enable = getattr(net, "gradient_checkpointing_enable", None)
    if callable(enable):
        enable()  # !XLA312
    else:
        enable = getattr(net, "enable_gradient_checkpointing", None)
        if enable is not None:
            cast(Any, enable)()  # !XLA312
    getattr(other, "gradient_checkpointing_enable")(use_reentrant=False)  # !XLA312
    if callable(getattr(third, "gradient_checkpointing_enable", None)):
        print("it could be smaller")
    off = getattr(third, "gradient_checkpointing_disable", None)
    off()
    mine = getattr(Own(), "gradient_checkpointing_enable")
    mine()
    net.to(where)
""",
    "XLA312: a program that replaces torch's function": """\
import torch.utils.checkpoint
from torch_xla.utils.checkpoint import checkpoint
torch.utils.checkpoint.checkpoint = checkpoint
def work(net):
    net.gradient_checkpointing_enable()
    net.to(torch_xla.device())
""",
    "XLA406: a dataset that every core downloads": """\
import torchaudio
import torchvision
from torchvision import datasets
def work(index, ask):
    whole = datasets.MNIST("data", train=True, download=True)  # !XLA406
    rest = datasets.MNIST("data", train=False, download=True)
    there = datasets.CIFAR10("data")
    speech = torchaudio.datasets.YESNO("data", download=True)  # !XLA406
    spoken = torchaudio.datasets.SPEECHCOMMANDS("data")
    if xm.is_master_ordinal():
        datasets.SVHN("data", download=True)
    own = datasets.KMNIST(f"data{torch_xla.runtime.global_ordinal()}", download=True)
    mine = read(ask)
    torch_xla.sync()
def read(ask):
    if not xm.is_master_ordinal():
        xm.rendezvous("download")
    kept = torchvision.datasets.FashionMNIST("data", download=True)
    if xm.is_master_ordinal():
        xm.rendezvous("download")
    return kept
torch_xla.launch(work, args=(1,))
""",
    "XLA406: a dataset that one core after the other downloads": """\
import torch_xla.distributed.xla_multiprocessing as xmp
from torchvision import datasets
ONE_BY_ONE = xmp.MpSerialExecutor()
def read():
    return datasets.MNIST("data", train=True, download=True)
def work(index, ask):
    return ONE_BY_ONE.run(read)
torch_xla.launch(work, args=(1,))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_masters_and_closures_do(name):
    program = STEP + PROGRAMS[name]
    wanted = name.partition(":")[0].split()
    assert {(row, code) for row, code in found(program) if code in wanted} == marks(program)
