"""What cores share out and start with, what loops keep and count, and agents: told or not."""

from __future__ import annotations

import pytest
from rule_helpers import found, marked, marks, rows

SAMPLERS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def epoch(net, optimizer, loader, device):
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)


def work(rank, data, places):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    order = SequentialSampler(data) if data.lazy else RandomSampler(data)
    mixed = DataLoader(data, sampler=order, batch_size=8, drop_last=True)  # !XLA402
    epoch(net, optimizer, mixed, device)
    some = SubsetRandomSampler(places)
    part = DataLoader(data, sampler=some, batch_size=8, drop_last=True)  # !XLA402
    epoch(net, optimizer, part, device)
    own = SubsetRandomSampler(places[xr.global_ordinal() :: xr.world_size()])
    epoch(net, optimizer, DataLoader(data, sampler=own, batch_size=8, drop_last=True), device)
    drawn = WeightedRandomSampler(data.weights, 4096)
    epoch(net, optimizer, DataLoader(data, sampler=drawn, batch_size=8, drop_last=True), device)
    again = RandomSampler(data, replacement=True, num_samples=4096)
    epoch(net, optimizer, DataLoader(data, sampler=again, batch_size=8, drop_last=True), device)
    if xr.world_size() > 1:
        shares = DistributedSampler(data, xr.world_size(), xr.global_ordinal())
    else:
        shares = RandomSampler(data)
    epoch(net, optimizer, DataLoader(data, sampler=shares, batch_size=8, drop_last=True), device)


torch_xla.launch(work, args=(torch.load("data.pt"), [1, 2, 3]))
"""


def test_samplers_of_one_process_share_nothing_out():
    """Each core sees all samples; not where a share, or a draw, is its own."""
    assert [row for row, code in found(SAMPLERS) if code == "XLA402"] == marked(SAMPLERS, "!XLA402")


STARTS = """
import torch_xla.distributed.xla_multiprocessing as xmp


def work(rank, flags):
    return flags


def by_default(settings, cores=8):
    xmp.spawn(work, args=(settings,), nprocs=cores)  # !XLA404


class Engine:
    @staticmethod
    def start(settings, *, nprocs: int = 4):
        xmp.spawn(work, args=(settings,), nprocs=nprocs)  # !XLA404


def by_call(settings, cores):
    xmp.spawn(work, args=(settings,), nprocs=cores)  # !XLA404


def of_one(settings, cores=1):
    xmp.spawn(work, args=(settings,), nprocs=cores)


def of_all(settings, cores=None):
    xmp.spawn(work, args=(settings,), nprocs=cores)


def told(settings, cores=8):
    xmp.spawn(work, args=(settings,), nprocs=cores)


def another(settings, cores=8):
    cores = None
    xmp.spawn(work, args=(settings,), nprocs=cores)


by_call(1, 8)
by_call(2, None)
told(3, cores=1)
told(4, None)
"""

COUNTED = """
import os

import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from settings import N_TPUS, start_up


def work(rank, flags):
    return flags


def count_chips():
    if "CHIPS" in os.environ:
        return int(os.environ["CHIPS"])
    return 4


def count_if_any():
    return 8 if os.environ.get("CHIPS") else None


xmp.spawn(work, args=(1,), nprocs=num_tpu_workers)  # !XLA404
xmp.spawn(work, args=(1,), nprocs=N_TPUS)  # !XLA404
xmp.spawn(work, args=(1,), nprocs=start_up)
num_cores = count_chips()
xmp.spawn(work, args=(1,), nprocs=num_cores)  # !XLA404
tpu_cores = min(8, start_up())
xmp.spawn(work, args=(1,), nprocs=tpu_cores)  # !XLA404
n_cores = start_up.get("cores")
xmp.spawn(work, args=(1,), nprocs=n_cores)
world_size = xm.xrt_world_size()
xmp.spawn(work, args=(1,), nprocs=world_size)
replicas = count_if_any()
xmp.spawn(work, args=(1,), nprocs=replicas)
cores = start_up()
if cores == 1:
    xmp.spawn(work, args=(1,), nprocs=cores)
"""


def test_a_number_of_processes_that_is_counted_or_comes_from_elsewhere():
    """What is called a number of cores is one; not where it may be None, or is known to be 1."""
    assert {item for item in found(COUNTED) if item[1] == "XLA404"} == marks(COUNTED)


def test_a_number_of_processes_that_a_parameter_brings():
    """The default counts unless all calls say another, and so does what a call says."""
    assert {item for item in found(STARTS) if item[1] == "XLA404"} == marks(STARTS)


GIVEN = """
import copy

import torch
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp


def fit(net, lr):
    def train():
        device = torch_xla.device()
        net.train()
        net.to(device)  # !XLA424
        return torch.optim.Adam(net.parameters(), lr=lr)

    def work(rank, flags):
        train()

    xmp.spawn(work, args=(None,), start_method="fork")


def copied(net):
    def work(rank, flags):
        own = copy.deepcopy(net).to(torch_xla.device())
        own.train()

    xmp.spawn(work, args=(None,), start_method="fork")


def of_rows(table):
    def work(rank, flags):
        return table.to(torch_xla.device()).sum()

    xmp.spawn(work, args=(None,), start_method="fork")


def alone(net):
    def step():
        net.train()
        net.to(torch_xla.device())

    step()
"""


def test_a_model_that_is_given_to_what_starts_the_cores():
    """All cores of a process move the one; a copy, and what is no model, are left alone."""
    assert {item for item in found(GIVEN) if item[1] == "XLA424"} == marks(GIVEN)


TABLES = """
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(net, optimizer, loader, classes, given):
    device = torch_xla.device()
    net.to(device)
    table = torch.zeros((classes, classes))
    hits = np.zeros(classes)
    owned = torch.zeros((classes, classes), device=device)
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        out = net(x)
        torch.nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        _, guess = torch.max(out, 1)
        for j in range(len(y)):
            g = guess[j]
            t = y[j]
            table[t, g] += 1  # !XLA108
            table[y[j], guess[j]] += 1  # !XLA108
            hits[t.long()] += 1  # !XLA108
            given[t] += 1
        for j, one in enumerate(guess):
            table[y[j], one] += 1  # !XLA108
        for j in range(classes):
            owned[j, j] += 1
            hits[j] += 1
        truths, guesses = y.cpu(), guess.cpu()
        for j in range(len(truths)):
            table[truths[j], guesses[j]] += 1
"""


def test_tables_of_the_host_that_are_counted_by_labels_of_the_device():
    """``table[y[j], guess[j]] += 1`` reads for each sample, whatever the places are called."""
    assert {item for item in found(TABLES) if item[1] == "XLA108"} == marks(TABLES)


STEPS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def work(rank, loader, settings):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    other = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.reduce_gradients(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        xm.optimizer_step(optimizer)  # !XLA304
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer.step())  # !XLA302
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.reduce_gradients(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.reduce_gradients(optimizer)
        optimizer.step()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)
        xm.reduce_gradients(other)
        if settings.slow:
            xm.optimizer_step(optimizer)


torch_xla.launch(work, args=([], None))
"""


def test_gradients_that_are_reduced_twice_and_a_step_that_is_handed_over():
    """``xm.optimizer_step`` reduces by itself, and takes an optimizer."""
    told = {item for item in found(STEPS) if item[1] in {"XLA302", "XLA304"}}
    assert told == marks(STEPS)


def test_gradients_that_one_core_reduces_twice_cost_nothing():
    assert "XLA304" not in {
        code for _, code in found(STEPS.replace("torch_xla.launch(work", "work(0, *("))
    }


KEPT = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(net, loader, optimizer, criterion):
    device = torch_xla.device()
    net = net.to(device)
    net.train()
    guesses, truths, cut, best = [], [], [], []
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        guesses.append(out)  # !XLA315
        truths.append(y)
        cut.append(out.detach())
        last = []
        last.append(out)
        top = out.argmax(1)
        best.append(top)
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        given = net(x)
        loss = criterion(given, y)
        loss.backward()
        given = given.detach()
        optimizer.step()
        guesses.append(given)
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(loader, device):
            seen = net(x)
            loss = criterion(seen, y)
            guesses.append(seen)
    return guesses, truths, cut, best
"""


def test_outputs_that_a_training_keeps_with_their_history():
    """A list of what the loss was made of; not of what was cut off, or was no part of it."""
    assert {item for item in found(KEPT) if item[1] == "XLA315"} == marks(KEPT)


AGENT = """
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm


class Memory:
    def __init__(self):
        self.clear()

    def store(self, state, reward, done):
        self.states.append(state)
        self.rewards.append(reward)
        self.dones.append(done)

    def clear(self):
        self.states, self.rewards = [], []
        self.dones = []

    def batches(self):
        states = np.array(self.states, dtype=np.float32)  # !XLA105
        rewards = np.asarray(self.rewards)  # !XLA105
        dones = np.array(self.dones)
        order = np.random.permutation(len(dones))
        return states, rewards, [order[i : i + 64] for i in range(0, 512, 64)]


class Agent:
    def __init__(self, env, net):
        self.device = torch_xla.device()
        self.env = env
        self.net = net.to(self.device)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.memory = Memory()

    def update(self):
        states, rewards, parts = self.memory.batches()
        for _ in range(4):
            for part in parts:
                x = torch.as_tensor(states[part], device=self.device)
                y = torch.as_tensor(rewards[part], device=self.device)
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.net(x), y).backward()
                xm.optimizer_step(self.optimizer)  # !XLA301
        self.memory.clear()

    def run(self, episodes):
        for episode in range(episodes):
            state, done = self.env.reset(), False
            while not done:
                seen = torch.as_tensor(state).to(self.device)
                with torch.no_grad():
                    action = self.net(seen).argmax().item()
                state, reward, done, _ = self.env.step(action)
                self.memory.store(seen, torch.tensor(reward, device=self.device), done)
                if len(self.memory.states) == 512:
                    self.update()
"""


def test_an_agent_that_learns_within_its_episodes():
    """The ``while`` around the update goes over nothing that ends its graphs."""
    told = {item for item in found(AGENT) if item[1] in {"XLA105", "XLA301"}}
    assert told == marks(AGENT)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("xm.optimizer_step(self.optimizer)", "xm.optimizer_step(self.optimizer, barrier=True)"),
        ("state, reward, done, _ =", "xm.mark_step(); state, reward, done, _ ="),
    ],
)
def test_an_agent_whose_steps_end(written, instead):
    assert rows(AGENT.replace(written, instead), "XLA301") == []


FED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def inner(net, optimizer, batch):
    device = torch_xla.device()
    for part in batch.chunk(40):
        optimizer.zero_grad()
        net(part.to(device)).sum().backward()
        optimizer.step()


def run(net, optimizer, loader, steps):
    net.to(torch_xla.device())
    feed = iter(pl.MpDeviceLoader(loader, torch_xla.device()))
    done = 0
    while done < steps:
        inner(net, optimizer, next(feed))
        done += 1
"""


def test_a_while_that_takes_batches_may_end_graphs():
    assert rows(FED, "XLA301") == []


PINNED = """
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader


class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        return self(batch[0]).sum()


def run(data, tpu, gpus):
    loader = DataLoader(data, batch_size=8, drop_last=True, pin_memory=True)
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(Net(), loader)
"""


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        ('accelerator="tpu", devices=8', True),
        ("tpu_cores=8", True),
        ('accelerator="tpu" if tpu else "gpu"', False),
        ("tpu_cores=8 if tpu else None", False),
        ("tpu_cores=8 if tpu else None, gpus=gpus", False),
    ],
)
def test_memory_is_pinned_for_a_trainer_that_may_be_for_gpus(trainer, told):
    program = PINNED.replace('accelerator="tpu", devices=8', trainer)
    assert bool(rows(program, "XLA718")) is told


LOG = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def work(rank, loader):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)
        if step % 50 == 0:
            with open("log.txt", "a") as log:
                xm.master_print(f"step {step}", fd=log)


torch_xla.launch(work, args=([],))
"""


def test_a_log_that_the_master_alone_prints_into():
    assert rows(LOG, "XLA406") == []
    assert rows(LOG.replace('xm.master_print(f"step {step}", fd=log)', "log.write('1')"), "XLA406")


DECLARED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader
from tqdm import tqdm


class Runner:
    def __init__(self, net, train: DataLoader, other, settings):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.train_loader = train
        self.other = other
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def run(self):
        for step, (x, y) in enumerate(tqdm(self.train_loader)):
            x, y = x.to(self.device), y.to(self.device)  # !XLA603
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            xm.optimizer_step(self.optimizer)  # !XLA301
        for x, y in self.other:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            xm.optimizer_step(self.optimizer)


def given(net, loader: DataLoader, device, optimizer):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)


def asks(net, loader: DataLoader, optimizer):
    device = torch_xla.device()
    net.to(device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)  # !XLA603
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)  # !XLA301
"""


def test_a_loader_that_is_declared_as_one_of_torch():
    """Where the device is asked for itself: who hands the loader over has none to wrap it with."""
    told = {item for item in found(DECLARED) if item[1] in {"XLA301", "XLA603"}}
    assert told == marks(DECLARED)


UNREAD = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from parts import make_loader
from tqdm import tqdm


def run(path):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for step, (x, y) in enumerate(make_loader(path)):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)  # here


run("data")
"""


@pytest.mark.parametrize(
    "over",
    [
        "step, (x, y) in enumerate(make_loader(path))",
        "x, y in make_loader(path)",
        "x, y in tqdm(make_loader(path))",
        "step, (x, y) in tqdm(enumerate(make_loader(path)), total=9)",
        "step, (x, y) in enumerate(tqdm(make_loader(path)), 1)",
    ],
)
def test_what_nobody_has_read_within_enumerate_and_a_bar(over):
    """The steps of such a loop end nowhere, however it is counted."""
    program = UNREAD.replace("step, (x, y) in enumerate(make_loader(path))", over)
    assert rows(program, "XLA301") == marked(program)
    moved = program.replace("        x, y = x.to(device), y.to(device)\n", "")
    assert rows(moved, "XLA301") == []
    ended = program.replace("optimizer)  # here", "optimizer, barrier=True)")
    assert rows(ended, "XLA301") == []


ROADS = """
import torch

try:
    import torch_xla.core.xla_model as xm

    HAS_XLA = True
except ImportError:
    HAS_XLA = False


class Agent:
    def __init__(self, net, device="auto"):
        if device != "auto":
            self.device = torch.device(device)
        elif torch.cuda.is_available():
            self.device = torch.device("cuda")
        elif HAS_XLA:
            self.device = xm.xla_device()
        else:
            self.device = torch.device("cpu")
        self.net = net.to(self.device)

    def load(self, path):
        self.net.load_state_dict(torch.load(path, map_location=self.device))  # !XLA720

    def load_by_device(self, path):
        if self.device.type == "xla":
            return torch.load(path, map_location="cpu")
        return torch.load(path, map_location=self.device)


def load(path, use_tpu):
    device = xm.xla_device() if use_tpu else torch.device("cuda")
    if use_tpu:
        state = torch.load(path, map_location="cpu")
    else:
        state = torch.load(path, map_location=device)
    return state, torch.load(path, map_location=device)  # !XLA720


def load_elsewhere(path, fast):
    device = torch.device("cuda") if fast else torch.device("cpu")
    return torch.load(path, map_location=device)
"""


def test_a_device_that_is_an_xla_device_on_one_road():
    """``map_location`` of it raises there; where the program has asked, nothing is told."""
    assert {item for item in found(ROADS) if item[1] == "XLA720"} == marks(ROADS)


def test_a_step_for_each_parameter():
    program = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

def fit(model, opt, opts, loader, parts):
    device = torch_xla.device()
    model.to(device).train()
    for turn, (x, y) in enumerate(loader):
        loss = model(x.to(device)).mean()
        loss.backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                p.grad.div_(parts)
            LINE
        BEHIND
"""
    told = program.replace("LINE", "xm.optimizer_step(opt)").replace("BEHIND", "opt.zero_grad()")
    assert rows(told, "XLA302") == [14]
    own = program.replace("LINE", "xm.optimizer_step(opts[name])").replace("BEHIND", "del loss")
    assert rows(own, "XLA302") == []
    behind = program.replace("LINE", "del name").replace("BEHIND", "xm.optimizer_step(opt)")
    assert rows(behind, "XLA302") == []
