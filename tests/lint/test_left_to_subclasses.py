"""Trainers whose base class leaves the step to others, and loaders that programs assert.

``# !XLA101`` marks what has to be found.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks_in_files, told_in_files

BASE = """
class Teacher:
    def __init__(self, net, train_loader, device):
        self.net = net.to(device)
        self.train_loader = train_loader
        self.device = device

    def teach(self, turns):
        for turn in range(turns):
            for batch in self.train_loader:
                images, labels = batch
                images, labels = images.to(self.device), labels.to(self.device)
                loss = self.step(images, labels)
                print(loss.item()){read}

    def step(self, images, labels):
        {body}
"""
OWN = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from base import Teacher


class XlaTeacher(Teacher):
    def __init__(self, net, train_loader):
        super().__init__(net, train_loader, torch_xla.device())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, images, labels):
        loss = self._loss(images, labels)
        loss.backward()
        xm.optimizer_step(self.optimizer)
        self.optimizer.zero_grad()
        return loss

    def _loss(self, images, labels):
        return torch.nn.functional.cross_entropy(self.net(images), labels)
"""
ASKED = {"XLA101", "XLA102", "XLA103"}


@pytest.mark.parametrize(
    "body", ["pass", "raise NotImplementedError", '"""One step."""\n        ...']
)
def test_the_step_is_the_subclass_s(tmp_path, body):
    files = {
        "base.py": BASE.format(body=body, read="  # !XLA101"),
        "own.py": OWN,
    }
    assert told_in_files(tmp_path, files, ASKED) == marks_in_files(files, ASKED)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("assert isinstance(batches, pl.MpDeviceLoader)", False),
        ("assert isinstance(batches, pl.MpDeviceLoader), 'for the device'", False),
        ("assert isinstance(batches, list)", True),
        ("assert batches", True),
    ],
)
def test_a_loader_that_a_function_says_is_one(said, told):
    program = f"""
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def teach(net, batches, optimizer):
    {said}
    device = torch_xla.device()
    net = net.to(device)
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        xm.optimizer_step(optimizer, barrier=True)
        optimizer.zero_grad()
"""
    assert any(code in {"XLA603", "XLA605"} for _, code in found(program)) is told
