"""What libraries are given to run: Fabric, Lightning's modules, transforms, rollouts of agents.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

FABRIC = """\
import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy, SingleDeviceXLAStrategy, XLAStrategy
from shop import dataset, network


def train(fabric, epochs):
    net = network()
    net, adam = fabric.setup(net, torch.optim.AdamW(net.parameters()))
    loader = fabric.setup_dataloaders(dataset())
    for x, y in loader:
        loss = (net(x) - y).pow(2).mean()
        adam.zero_grad()
        fabric.backward(loss)
        adam.step()
"""
LIT = """\
import lightning as L
import torch
from lightning.pytorch.demos import boring_classes
from torch import nn


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.seen = []
        self.total = 0.0

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
"""
FITTED = """\


trainer = L.Trainer(accelerator="tpu", devices=4)
trainer.fit(Lit())
"""
XLA = """\
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch import nn
"""

#: Programs by what they are about.
PROGRAMS = {
    "XLA449: Fabric whose work is called": f"""\
{FABRIC}

def main(tpu=True):
    if tpu:
        strategy = XLAStrategy(sync_module_states=False)
    else:
        strategy = FSDPStrategy()
    fabric = L.Fabric(devices=4, strategy=strategy)
    fabric.print("ready")
    train(fabric, 3)  # !XLA449


if __name__ == "__main__":
    main()
""",
    "XLA449: Fabric on a number of cores, in the module": f"""\
{FABRIC}

fabric = L.Fabric(accelerator="tpu", devices=8, precision="bf16-true")
train(fabric, 3)  # !XLA449
""",
    "XLA449: Fabric that is set up where it is made": """\
import lightning as L
import torch
from shop import dataset, network

fabric = L.Fabric(accelerator="tpu", strategy="xla", devices="auto")  # !XLA449
net = network()
net, adam = fabric.setup(net, torch.optim.AdamW(net.parameters()))
for x, y in fabric.setup_dataloaders(dataset()):
    fabric.backward((net(x) - y).pow(2).mean())
    adam.step()
""",
    "XLA449: launched without a function": f"""\
{FABRIC}

def main():
    fabric = L.Fabric(accelerator="tpu", devices=4)
    fabric.launch()  # !XLA449
    train(fabric, 3)
""",
    "XLA449: launched as it should be": f"""\
{FABRIC}

def main(debug):
    fabric = L.Fabric(accelerator="tpu", devices=4)
    if debug:
        train(fabric, 1)
    else:
        fabric.launch(train, 3)
""",
    "XLA449: one core, or as many as there are": f"""\
{FABRIC}

def one():
    fabric = L.Fabric(accelerator="tpu", devices=1)
    train(fabric, 3)


def single():
    fabric = L.Fabric(accelerator="tpu", strategy=SingleDeviceXLAStrategy(device=0))
    train(fabric, 3)


def all_there_are():
    fabric = L.Fabric(accelerator="tpu")
    train(fabric, 3)


def gpus():
    fabric = L.Fabric(accelerator="cuda", devices=4, strategy=FSDPStrategy())
    fabric.launch()
    train(fabric, 3)
""",
    "XLA449: Fabric that somebody else gets": f"""\
{FABRIC}

def make():
    fabric = L.Fabric(accelerator="tpu", devices=4)
    return fabric


class Runner:
    def __init__(self):
        self.fabric = L.Fabric(accelerator="tpu", devices=4)

    def run(self):
        train(self.fabric, 3)
""",
    "XLA901: optimizers that are set up by themselves": """\
import lightning as L
import torch
from lightning.fabric.strategies import XLAStrategy
from shop import dataset, network


def work(fabric):
    net = fabric.setup(network())
    adam = torch.optim.AdamW(net.parameters())
    adam = fabric.setup_optimizers(adam)  # !XLA901
    for x, y in fabric.setup_dataloaders(dataset()):
        fabric.backward((net(x) - y).pow(2).mean())
        adam.step()


fabric = L.Fabric(devices="auto", strategy=XLAStrategy())
fabric.launch(work)
""",
    "XLA901: optimizers under sharded weights, and elsewhere": """\
import lightning as L
import torch
from lightning.fabric.strategies import XLAFSDPStrategy
from shop import dataset, network


def work(fabric):
    net = fabric.setup_module(network())
    adam = fabric.setup_optimizers(torch.optim.AdamW(net.parameters()))
    for x, y in fabric.setup_dataloaders(dataset()):
        fabric.backward((net(x) - y).pow(2).mean())
        adam.step()


fabric = L.Fabric(accelerator="tpu", devices=4, strategy=XLAFSDPStrategy())
fabric.launch(work)
""",
    "XLA901: two kinds of Fabric": """\
import lightning as L
import torch
from shop import network


def tpus():
    fabric = L.Fabric(accelerator="tpu", devices=4)
    fabric.launch(work)


def work(fabric):
    net, adam = fabric.setup(network(), torch.optim.SGD(network().parameters(), lr=0.1))


def gpus():
    fabric = L.Fabric(accelerator="cuda", devices=4)
    fabric.launch()
    adam = fabric.setup_optimizers(torch.optim.SGD(network().parameters(), lr=0.1))
""",
    "XLA315: losses that a module keeps": f"""\
{LIT}
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.seen.append(loss)  # !XLA315
        self.total += loss  # !XLA315
        return {{"loss": loss}}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.seen.append(loss)
        return loss
{FITTED}""",
    "XLA315: what a module may keep": f"""\
{LIT}
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        with torch.no_grad():
            norm = self.net.weight.norm()
        self.seen.append(loss.detach())
        self.seen.append(norm)
        self.total = 0.0
        self.total += loss
        return loss
{FITTED}""",
    "XLA315: losses that a Trainer keeps": """\
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Keeping(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kept = []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs.loss
        self.kept.append(loss)  # !XLA315
        return (loss, outputs) if return_outputs else loss
""",
    "XLA401: what a module is asked for outside of the training": f"""\
{LIT}
    def training_step(self, batch, batch_idx):
        return self._loss(batch)

    def _loss(self, batch):
        print("a batch")  # !XLA401
        self.net.register_forward_hook(self._note)
        return self.net(batch[0]).mean()

    def _note(self, module, given, made):
        print("noted")  # !XLA401

    def on_fit_start(self):
        print("ready")  # !XLA401

    def answer(self, question):
        print("asked", question)
        return self.net(question).argmax()

    def show(self):
        print(self.net)
{FITTED}

Lit().show()
""",
    "XLA407: processes of one that has the device": f"""\
{XLA}
import torch.multiprocessing as mp


def learn(rank, model, device):
    model = model.to(device)
    model(torch.randn(4, 4, device=device)).mean().backward()


def learn_alone(rank):
    learn(rank, nn.Linear(4, 4), torch_xla.device())


def by_hand(count):
    device = xm.xla_device()  # !XLA407
    ranks = [mp.Process(target=learn, args=(i, nn.Linear(4, 4), device)) for i in range(count)]
    for one in ranks:
        one.start()


def in_a_context(count):
    start = torch_xla.device()
    ctx = mp.get_context("spawn")
    for rank in range(count):
        ctx.Process(target=learn_alone, args=(rank,)).start()
""",
    "XLA407: processes in a context": f"""\
{XLA}
import torch.multiprocessing as mp


def pick():
    return torch_xla.device()


def learn(rank, device):
    nn.Linear(4, 4).to(pick())


def main(count):
    device = pick()  # !XLA407
    ctx = mp.get_context("spawn")
    for rank in range(count):
        ctx.Process(target=learn, args=(rank, device)).start()
""",
    "XLA407: processes that leave the device alone, or come before it": f"""\
{XLA}
import multiprocessing


def play(queue, make_env):
    env = make_env()
    queue.put(env.step(0))


def learn(rank):
    nn.Linear(4, 4).to(torch_xla.device())


def players(make_env):
    device = torch_xla.device()
    queue = multiprocessing.Queue()
    multiprocessing.Process(target=play, args=(queue, make_env)).start()
    return nn.Linear(4, 4).to(device)


def first(count):
    for rank in range(count):
        multiprocessing.Process(target=learn, args=(rank,)).start()


def then():
    first(1)
    return torch_xla.device()
""",
    "XLA305: an optimizer of a class that is chosen": f"""\
{XLA}

class Runner:
    def __init__(self, model, criterion):
        self.model = model
        self.criterion = criterion

    def _begin(self, opt_class, settings):
        self.optimizer = opt_class(self.model.parameters(), **settings)  # !XLA305

    def fit(self, opt_class, settings, loader):
        self._begin(opt_class, settings)
        self._epoch(loader)

    def _epoch(self, loader):
        device = torch_xla.device()
        self.model = self.model.to(device)
        for x, y in pl.MpDeviceLoader(loader, device):
            self.optimizer.zero_grad()
            self.criterion(self.model(x), y).backward()
            xm.optimizer_step(self.optimizer)
""",
    "XLA302: an optimizer that a name chooses": f"""\
{XLA}
OPTIMIZERS = {{"sgd": torch.optim.SGD, "adam": torch.optim.Adam}}


def train(index, net, loader, name):
    device = torch_xla.device()
    net = net.to(device)
    trained = getattr(torch.optim, name)(net.parameters(), lr=0.1)
    other = OPTIMIZERS[name](net.parameters())
    for x in pl.MpDeviceLoader(loader, device):
        trained.zero_grad()
        net(x).mean().backward()
        trained.step()  # !XLA302
    for x in pl.MpDeviceLoader(loader, device):
        other.zero_grad()
        net(x).mean().backward()
        other.step()  # !XLA302


if __name__ == "__main__":
    torch_xla.launch(train, args=(nn.Linear(4, 4), [], "SGD"))
""",
    "XLA203: slices of examples": f"""\
{XLA}

def replay(net, optimizer, examples, rounds):
    device = torch_xla.device()
    net = net.to(device)
    for _ in range(rounds):
        for i in range(0, len(examples), 64):  # !XLA203
            batch = examples[i : i + 64]
            states = torch.stack([state for state, _ in batch]).to(device)
            optimizer.zero_grad()
            net(states).mean().backward()
            optimizer.step()
            torch_xla.sync()


def tensors(net, optimizer, x, size):
    device = torch_xla.device()
    net = net.to(device)
    total = x.shape[0]
    order = torch.randperm(total)
    for start in range(0, total, size):  # !XLA203
        end = min(start + size, total)
        optimizer.zero_grad()
        net(x[order[start:end]].to(device)).mean().backward()
        optimizer.step()
        torch_xla.sync()
""",
    "XLA203: slices that are whole": f"""\
{XLA}

def learn(net, optimizer, x):
    optimizer.zero_grad()
    net(x.to(torch_xla.device())).mean().backward()
    optimizer.step()
    torch_xla.sync()


def work(net, optimizer, x, args):
    net = net.to(torch_xla.device())
    for i in range(0, len(x) - 63, 64):
        learn(net, optimizer, x[i : i + 64])
    for i in range(0, len(x) // 64 * 64, 64):
        learn(net, optimizer, x[i : i + 64])
    for i in range(0, args.batch_size, args.minibatch_size):
        learn(net, optimizer, x[i : i + args.minibatch_size])
    for i in range(0, len(x), 64):
        part = x[i : i + 64]
        if len(part) < 64:
            continue
        learn(net, optimizer, part)
    for i in range(0, len(x), 64):
        learn(net, optimizer, nn.functional.pad(x[i : i + 64], (0, 0, 0, 64)))
    for i in range(0, len(x), 1):
        learn(net, optimizer, x[i : i + 1])
    with torch.no_grad():
        for i in range(0, len(x), 64):
            out = net(x[i : i + 64].to(torch_xla.device()))
            torch_xla.sync()
""",
    "XLA205: places that a loop of Fabric's counts": """\
import lightning as L
import torch
from shop import dataset, network


@torch.no_grad()
def check(fabric, net, loader):
    losses = torch.zeros(100, device=fabric.device)
    spread = torch.zeros(100)
    for k, (x, y) in enumerate(loader):
        losses[k] = (net(x) - y).pow(2).mean().item()  # !XLA205
        spread[0] += k
    return losses.mean()


def work(fabric):
    net = fabric.setup(torch.nn.Linear(8, 2))
    check(fabric, net, fabric.setup_dataloaders(dataset()))


fabric = L.Fabric(accelerator="tpu", devices=4)
fabric.launch(work)
""",
    "XLA205: what a rollout keeps": f"""\
{XLA}
import gymnasium as gym


def play(policy, optimizer, steps, rounds):
    device = torch_xla.device()
    envs = gym.make_vec("CartPole-v1", 8)
    policy = policy.to(device)
    seen = torch.zeros((steps, 8, 4), device=device)
    rewards = np.zeros((steps, 8))
    for _ in range(rounds):
        state, _ = envs.reset()
        state = torch.as_tensor(state, device=device)
        for step in range(steps):
            seen[step] = state  # !XLA205
            with torch.no_grad():
                action = policy(state).argmax(1)
            state, rewards[step], *_ = envs.step(action.cpu().numpy())
            state = torch.as_tensor(state, device=device)
        loss = policy(seen.flatten(0, 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
""",
    "XLA205: what a rollout keeps on the host": f"""\
{XLA}
import gymnasium as gym


def play(policy, optimizer, steps, rounds):
    device = torch_xla.device()
    envs = gym.make_vec("CartPole-v1", 8)
    policy = policy.to(device)
    seen = np.zeros((steps, 8, 4), dtype=np.float32)
    for _ in range(rounds):
        state, _ = envs.reset()
        for step in range(steps):
            seen[step] = state
            with torch.no_grad():
                action = policy(torch.as_tensor(state, device=device)).argmax(1)
            state, *_ = envs.step(action.cpu().numpy())
        loss = policy(torch.as_tensor(seen, device=device).flatten(0, 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
""",
    "XLA108: a table of the host, counted by what is on the device": f"""\
{XLA}

@torch.no_grad()
def confusion(model, loader, classes):
    device = torch_xla.device()
    model = model.to(device)
    table, other = np.zeros((classes, classes)), torch.zeros(classes, classes)
    hits = [0] * classes
    for x, y in pl.MpDeviceLoader(loader, device):
        guess = model(x).argmax(1)
        for t, p in zip(y.view(-1), guess.view(-1)):
            table[t.long(), p.long()] += 1  # !XLA108
            other[t, p] += 1  # !XLA108
        for t in guess.cpu():
            table[t, 0] += 1
        for i in range(classes):
            hits[i] += 1
            table[i, i] += 1
    return table, other, hits
""",
    "XLA104 XLA202: what transforms give": f"""\
{XLA}
import torchaudio
from torchvision import transforms


class Ears(nn.Module):
    def __init__(self):
        super().__init__()
        self.db = torchaudio.transforms.AmplitudeToDB()
        self.flip = transforms.RandomHorizontalFlip()
        self.last = nn.Linear(64, 10)

    def forward(self, waves):
        loud = self.db(waves)
        if loud.max() > 3:  # !XLA104
            loud = loud / 2
        flipped = self.flip(loud)
        kept = flipped[flipped > 0]  # !XLA202
        return self.last(flipped) + kept.mean()


class Clips(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.db = torchaudio.transforms.AmplitudeToDB()

    def __getitem__(self, i):
        wave, _ = torchaudio.load(self.paths[i])
        loud = self.db(wave)
        return loud[loud > 0] if loud.max() > 3 else loud


def train(loader, optimizer):
    device = torch_xla.device()
    model = Ears().to(device)
    for waves, y in pl.MpDeviceLoader(loader, device):
        loss = nn.functional.cross_entropy(model(waves), y)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA603: a helper moves what plain loaders give, beside a device loader": f"""\
{XLA}
from torch.utils.data import DataLoader

DEVICE = torch_xla.device()


class Runner:
    def __init__(self, model, criterion, adam):
        self.model = model.to(DEVICE)
        self.criterion = criterion
        self.adam = adam

    def _answer(self, x, y):
        if isinstance(x, list):
            x = [one.to(DEVICE) for one in x]  # !XLA603
            return self.model(*x), y.to(DEVICE)
        x = x.to(DEVICE)
        return self.model(x), y.to(DEVICE)

    def run(self, rows):
        self.fit(DataLoader(rows, batch_size=8, drop_last=True))

    def fit(self, loader):
        for x, y in loader:
            out, y = self._answer(x, y)
            loss = self.criterion(out, y)
            self.adam.zero_grad()
            loss.backward()
            xm.optimizer_step(self.adam, barrier=True)

    def fit_on_cores(self, loader):
        for x, y in pl.MpDeviceLoader(loader, DEVICE):
            loss = self.criterion(self.model(x), y)
            self.adam.zero_grad()
            loss.backward()
            xm.optimizer_step(self.adam)

    @torch.no_grad()
    def check(self, rows=None):
        for x, y in rows or self.rows:
            out, y = self._answer(x, y)
            self.criterion(out, y)
            torch_xla.sync()
""",
}


@pytest.mark.parametrize("about", PROGRAMS)
def test_each_mark_is_told_and_nothing_else_of_the_same_rules(about):
    asked = about.partition(":")[0].split()
    program = PROGRAMS[about]
    told = {(row, code) for row, code in found(program) if code in asked}
    assert told == marks(program)


ELSEWHERE = {
    about: program.replace('accelerator="tpu"', 'accelerator="cuda"').replace('"xla"', '"ddp"')
    for about, program in PROGRAMS.items()
    if 'accelerator="tpu"' in program and "XLAStrategy(" not in program
}


@pytest.mark.parametrize("about", [one for one in ELSEWHERE if "Strategy()" not in ELSEWHERE[one]])
def test_the_same_on_other_devices_is_left_alone(about):
    assert found(ELSEWHERE[about].replace("XLAStrategy", "DDPStrategy")) == []


def test_a_fabric_of_another_file_is_launched_there(tmp_path):
    files = {
        "work.py": f"{FABRIC}\n\nfabric = L.Fabric(accelerator='tpu', devices=4)\n",
        "start.py": "from work import fabric, train\n\nfabric.launch(train, 3)\n",
        "look.py": """\
import lightning as L


def look():
    other = L.Fabric(accelerator="cuda", devices=1)
    other.launch()
""",
        "main.py": f"""\
{FABRIC}
from look import look


def main():
    fabric = L.Fabric(accelerator="tpu", devices=4)
    train(fabric, 3)  # !XLA449
""",
    }
    assert told_in_files(tmp_path, files, {"XLA449"}) == marks_in_files(files)
