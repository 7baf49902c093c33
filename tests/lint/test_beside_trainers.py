"""Loops of a program's own beside a Trainer's, Trainers of other files, rows made on the CPU.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

SCORE = """\
import torch
from torch.utils.data import DataLoader
from transformers import HfArgumentParser, Trainer, TrainingArguments
from nets import Net, Settings


def score(trainer, rows):
    device = trainer.args.device
    net = trainer._wrap_model(trainer.model, training=False)
    net.eval()
    if trainer.args.process_index == 0:  # !XLA418
        losses = []
        for batch in DataLoader(rows, batch_size=8):  # !XLA301 !XLA320
            out = net(batch["x"].to(device))  # !XLA603
            losses.append(out["loss"])
        return torch.stack(losses).mean().item()
    return None


def _mp_fn(index):
    args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
    trainer = Trainer(Net(Settings()), args, train_dataset=rows(), data_collator=pad)
    trainer.train()
    print(score(trainer, rows()))
"""
NESTED = """\
import torch
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer
import torch_xla.core.xla_model as xm


class Pairs(Trainer):
    def plain(self, rows):
        return DataLoader(rows, sampler=SequentialSampler(rows), batch_size=8)

    def rights(self, lefts, rows):
        found = []
        for batch in self.plain(rows):
            for key, value in batch.items():
                batch[key] = value.to(self.args.device)  # !XLA603
            found.append(lefts @ batch["x"].T)
        return found

    @torch.no_grad()
    def table(self, rows):
        found = []
        for batch in self.plain(rows):
            for key, value in batch.items():
                batch[key] = value.to(self.args.device)  # !XLA603
            found.extend(self.rights(self.model(batch["x"]), rows))
            xm.mark_step()
        return found
"""
OWN = """\
import torch
from transformers import TrainingArguments
from trainers import Own{name}
from nets import Net, Settings


def _mp_fn(index):
    args = TrainingArguments("out")
    net = Net(Settings())  # !XLA426
    trainer = Own{name}(net, args, train_dataset=rows(), data_collator=pad)
    trainer.train()
"""
PLAYED = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from arrays import {makes}
from policies import Policy


def play(envs, turns):
    device = torch_xla.device()
    policy = Policy().to(device)
    seen = envs.reset()
    now = {makes}(seen, device)
    for turn in range(turns):
        with torch.no_grad():
            chosen = policy(now).argmax(-1)
        seen, reward, done, _ = envs.step(chosen.cpu().numpy())
        now = {makes}(seen, {given})  # !XLA603
"""
ROWS = """\
import math
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from settings import settings
from torch import nn


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, steps):
        half = settings["width"] // 2
        rates = np.log(10000) / (half - 1)
        rates = torch.exp(torch.arange(half) * -rates)
        angles = steps * rates  # !XLA604
        return self.layer(torch.cat((angles.sin(), angles.cos()), 1))


def train(rows):
    device = torch_xla.device()
    net = Steps().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        xm.optimizer_step(optimizer)
"""

SAVED = """\
import os

import torch
from accelerate import Accelerator
from torch import nn

os.environ["XLA_USE_BF16"] = "1"


class Task:
    def __init__(self, accelerator: Accelerator, rows):
        self.accelerator, self.rows = accelerator, rows
        self.net = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.net, self.optimizer, self.rows = accelerator.prepare(self.net, optimizer, rows)

    def run(self, epochs):
        for epoch in range(epochs):
            for x, y in self.rows:
                self.optimizer.zero_grad()
                self.accelerator.backward((self.net(x) - y).pow(2).mean())
                self.optimizer.step()
            if self.accelerator.is_main_process:
                self.save(f"{epoch}.pt")

    def save(self, path):
        device = next(self.net.parameters()).device
        net = self.accelerator.unwrap_model(self.net)
        bare = self.accelerator.unwrap_model(self.net).cpu()  # !XLA305
        torch.save(bare.state_dict(), path)
        bare.to(device)
"""

KERNEL = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.func import functional_call, jacrev, vmap


def kernel(net, rows, device):
    net = net.to(device)
    weights = dict(net.named_parameters())

    def run(x):
        return functional_call(net, weights, (x,))

    slopes = jacrev(run)
    found = []
    with torch.no_grad():
        for x in pl.MpDeviceLoader(rows, device):
            net(x)
            rises = slopes(x)
            found.append(rises.sum().item())  # !XLA101
            wide = vmap(run)(x).to(torch.float64)  # !XLA705
            found.append(wide.cpu())  # !XLA101
            found.append(vmap(torch.sin)(torch.ones(4)).double().cpu())
    return found


def main(net, rows):
    return kernel(net, rows, torch_xla.device())
"""

PROGRAMS = {
    "XLA101 XLA705: what torch.func makes of functions": KERNEL,
    "XLA305: a model under Accelerate that goes to the CPU to be saved": SAVED,
    "XLA305: behind the training": SAVED.replace("            if self.acc", "        if self.acc")
    .replace("                self.save", "            self.save")
    .replace("  # !XLA305", ""),
    "XLA305: a copy of it": SAVED.replace(
        "self.accelerator.unwrap_model(self.net).cpu()", "copy.deepcopy(net).cpu()"
    ).replace("  # !XLA305", ""),
    "XLA301 XLA320 XLA418 XLA603: an evaluation over a loader of its own": SCORE,
    "XLA301 XLA320 XLA418 XLA603: over the Trainer's loader": SCORE.replace(
        "DataLoader(rows, batch_size=8)", "trainer.get_eval_dataloader(rows)"
    )
    .replace("  # !XLA418", "")
    .replace("  # !XLA301 !XLA320", "")
    .replace("  # !XLA603", ""),
    "XLA301 XLA320 XLA418 XLA603: over one that Accelerate has prepared": SCORE.replace(
        "DataLoader(rows, batch_size=8)",
        "trainer.accelerator.prepare(DataLoader(rows, batch_size=8))",
    )
    .replace("  # !XLA418", "")
    .replace("  # !XLA301 !XLA320", "")
    .replace("  # !XLA603", ""),
    "XLA603: a loop over a loader that runs another one": NESTED,
    "XLA426: a Trainer of another file": OWN.format(name="Trainer"),
    "XLA426: a class of another file that is named for no Trainer": OWN.format(
        name="Search"
    ).replace("  # !XLA426", ""),
    "XLA603: what a helper makes a tensor of": PLAYED.format(makes="to_tensor", given="device"),
    "XLA603: what a helper makes of it on the host": PLAYED.format(
        makes="to_tensor", given="torch.float32"
    ).replace("  # !XLA603", ""),
    "XLA603: a helper of another name": PLAYED.format(makes="shown", given="device").replace(
        "  # !XLA603", ""
    ),
    "XLA604: a row of numbers made on the CPU for each step": ROWS,
    "XLA604: made on the device": ROWS.replace(
        "arange(half)", "arange(half, device=steps.device)"
    ).replace("  # !XLA604", ""),
    "XLA604: of what nobody knows": ROWS.replace("np.log(10000)", "settings.rate()").replace(
        "  # !XLA604", ""
    ),
    "XLA604: by math": ROWS.replace("np.log(10000)", "math.log(10000)"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_told_where_it_is(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


BASE = """\
import torch


class Base:
    def __init__(self, accelerator, net, rows):
        self.accelerator = accelerator
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.net, self.optimizer, self.rows = accelerator.prepare(net, optimizer, rows)

    def run(self, bar):
        for x in self.rows:
            self.optimizer.zero_grad()
            loss = self.step(x)
            self.accelerator.backward(loss)
            self.optimizer.step()
            bar.set_description(f"{loss.item():.3f}")  # !XLA101
"""
STARTED = """\
import os

os.environ["{variable}"] = "{value}"
import torch
from accelerate import Accelerator
from base import Base


class Task(Base):
    def step(self, x):
        return self.net(x).pow(2).mean()


Task(Accelerator(), torch.nn.Linear(8, 8), rows()).run(bar())
"""


@pytest.mark.parametrize(
    ("variable", "value", "for_tpus"),
    [
        ("XRT_TPU_CONFIG", "localservice;0;localhost:51011", True),
        ("ACCELERATE_DOWNCAST_BF16", "true", True),
        ("TOKENIZERS_PARALLELISM", "false", False),
    ],
)
def test_a_variable_of_tpus_brings_the_files_together(variable, value, for_tpus, tmp_path):
    base = BASE if for_tpus else BASE.replace("  # !XLA101", "")
    files = {"base.py": base, "main.py": STARTED.format(variable=variable, value=value)}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files)


BESIDE_LIGHTNING = """\
import lightning as L
import torch
import torch_xla
from torch.utils.data import DataLoader


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(x)


def predict(rows, path, place):
    device = {device}
    net = Net().to(device)
    net.load_state_dict(torch.load(path, map_location="cpu"))
    net.eval()
    found = []
    with torch.no_grad():
        for x in DataLoader(rows, batch_size=64):
            found.append(net(x.to(device)).argmax(-1).cpu()){mark}
    return torch.cat(found)


L.Trainer(accelerator="tpu", devices=1).fit(Net(), read())
predict(read(), "net.ckpt", "cuda")
"""


@pytest.mark.parametrize(
    ("device", "told_there"),
    [("torch_xla.device()", True), ("torch.device(place)", False), ("place", False)],
)
def test_a_loop_beside_lightnings_that_says_its_device(device, told_there):
    mark = "  # !XLA603" if told_there else ""
    program = BESIDE_LIGHTNING.replace("{device}", device).replace("{mark}", mark)
    assert told("XLA603", program) == marks(program)
