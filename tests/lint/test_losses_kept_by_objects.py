"""Losses whose history an object keeps: meters that sum them up, trainers that note them.

All programs are invented. ``# !XLA315`` marks a line on which that rule has to find something; no
other line may have one.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, marks, rows

HEAD = """\
import collections
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
LOOP = """\
def train(net, adam, loader, criterion, device):
    kept = Kept()
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        kept.update({given})
"""
METERS = {
    "a sum": "    def update(self, value, n=1):\n        self.sum += value * n\n",
    "a sum that is written out": "    def update(self, v):\n        self.sum = self.sum + v\n",
    "a list": "    def update(self, value):\n        self.values.append(value)\n",
    "a sum and a mean": """\
    def update(self, value, n=1):
        self.count += n
        self.sum += n * value
        self.mean = self.sum / self.count
""",
    "only of some": """\
    def update(self, value, n=1):
        if self.on:
            self.sum += value
""",
}
HEALTHY = {
    "a number": "    def update(self, value):\n        self.sum += value.item()\n",
    "detached": "    def update(self, value):\n        self.sum += value.detach()\n",
    "the last one": "    def update(self, value):\n        self.last = value\n",
    "taken as a number first": """\
    def update(self, value, n=1):
        if isinstance(value, torch.Tensor):
            value = value.item()
        self.sum += value * n
""",
    "without gradients": """\
    @torch.no_grad()
    def update(self, value, n=1):
        self.sum += value * n
""",
    "a window": """\
    def update(self, value):
        self.values.append(value)
        if len(self.values) > 20:
            del self.values[0]
""",
    "a window of the last": """\
    def update(self, value):
        self.values.append(value)
        while len(self.values) > 20:
            self.values.pop(0)
""",
    "the other argument": """\
    def update(self, value, n=1):
        self.last = value.detach()
        self.count += n
""",
}
TRAINERS = {
    "the loop is a method": """\
class Trainer:
    def fit(self, loader, device):
        for x, y in pl.MpDeviceLoader(loader, device):
            self.adam.zero_grad()
            loss = self.criterion(self.net(x), y)
            loss.backward()
            xm.optimizer_step(self.adam)
            self.total += loss  # !XLA315
            self.losses.append(loss)  # !XLA315
            self.numbers.append(loss.detach())
            self.last = loss
""",
    "the step is a method": """\
class Trainer:
    def step(self, x, y):
        self.adam.zero_grad()
        loss = self.criterion(self.net(x), y)
        loss.backward()
        xm.optimizer_step(self.adam)
        self.total += loss  # !XLA315
        self.shown = 0.0
        self.shown += loss
    def fit(self, loader, device):
        for x, y in pl.MpDeviceLoader(loader, device):
            self.step(x, y)
""",
    "the losses of one step": """\
class Trainer:
    def step(self, parts):
        self.adam.zero_grad()
        total = 0.0
        for name, part in parts:
            loss = self.criterion(self.nets[name](part))
            loss.backward()
            total += loss
        xm.optimizer_step(self.adam)
        return total.detach()
    def fit(self, loader, device):
        for x, y in pl.MpDeviceLoader(loader, device):
            self.step((("x", x), ("y", y)))
            both = 0.0
            for net, part in ((self.one, x), (self.other, y)):
                loss = self.criterion(net(part))
                loss.backward()
                both += loss
            xm.optimizer_step(self.adam)
""",
    "it is made or emptied in each turn": """\
class Kept:
    def __init__(self):
        self.sum = 0.0
    def reset(self):
        self.sum = 0.0
    def update(self, value):
        self.sum += value
def train(net, adam, loader, criterion, device):
    one = Kept()
    for x, y in pl.MpDeviceLoader(loader, device):
        other = Kept()
        one.reset()
        adam.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        one.update(loss)
        other.update(loss)
""",
}


def _meter(methods, given="loss"):
    return f"{HEAD}class Kept:\n{methods}{LOOP.format(given=given)}"


@pytest.mark.parametrize("name", METERS)
def test_a_meter_that_adds_up_losses_with_their_history(name):
    program = _meter(METERS[name])
    assert rows(program, "XLA315") == [len(program.splitlines())]
    assert not rows(_meter(METERS[name], "loss.detach()"), "XLA315")
    assert not rows(_meter(METERS[name], "loss.item()"), "XLA315")


@pytest.mark.parametrize("name", HEALTHY)
def test_a_meter_that_keeps_no_history(name):
    assert not rows(_meter(HEALTHY[name]), "XLA315")


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_that_notes_its_losses(name):
    program = HEAD + TRAINERS[name]
    assert rows(program, "XLA315") == [row for row, _ in sorted(marks(program))]


def test_plain_pytorch_is_left_alone():
    program = _meter(METERS["a sum"]).replace("pl.MpDeviceLoader(loader, device)", "loader")
    lines = [line for line in program.splitlines(keepends=True) if "torch_xla" not in line]
    assert codes("".join(lines).replace("xm.optimizer_step(adam)", "adam.step()")) == []
