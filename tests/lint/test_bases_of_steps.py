"""Classes that add to a class of another file, which takes the steps on the device."""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import told_in_files

BASE = """\
import torch

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


class Worker:
    def __init__(self, options):
        self.options = options
        self.device = options["place"]()

    def step(self, optimizer):
        if self.options["kind"] == "xla":
            xm.optimizer_step(optimizer, barrier=True)
        else:
            optimizer.step()

    def numbers(self, losses):
        kept = {}
        for name, value in losses.items():
            kept[name] = value.mean().item()
        return kept
"""
ADDED = """\
import torch
from base import Worker


class Sharpener(Worker):
    def __init__(self, options, net):
        super().__init__(options)
        self.net = net.to(self.device)
        self.adam = torch.optim.Adam(self.net.parameters())

    def feed_data(self, data):
        self.small = data["small"].to(self.device)
        self.wanted = data["wanted"].to(self.device)

    def optimize_parameters(self, number):
        self.adam.zero_grad()
        self.made = self.net(self.small)
        losses = {}
        total = 0
        loss = (self.made - self.wanted).abs().mean()
        total += loss
        losses["l1"] = loss
        total.backward()
        self.step(self.adam)
        self.log = self.numbers(losses)

    def check(self, loader, number):
        if self.options["rank"] == 0:
            self.check_alone(loader, number)

    def check_alone(self, loader, number):
        self.net.eval()
        found = []
        with torch.no_grad():
            for data in loader:
                self.feed_data(data)
                found.append(self.net(self.small))
        return found
"""
ASKED = {"XLA101", "XLA418"}


def test_a_step_of_an_added_class(tmp_path):
    told = told_in_files(tmp_path, {"base.py": BASE, "sharpen.py": ADDED}, ASKED)
    assert told == {("base.py", 23, "XLA101"), ("sharpen.py", 28, "XLA418")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xm.optimizer_step(optimizer, barrier=True)", "optimizer.step()"),
        ("        self.log = self.numbers(losses)\n", ""),
    ],
    ids=["no call of torch_xla", "nothing read"],
)
def test_what_reads_nothing_on_the_device(tmp_path, old, new):
    files = {"base.py": BASE.replace(old, new), "sharpen.py": ADDED.replace(old, new)}
    assert files != {"base.py": BASE, "sharpen.py": ADDED}
    told = told_in_files(tmp_path, files, ASKED)
    assert {code for _, _, code in told} <= {"XLA418"}


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ('self.options["rank"] == 0', True),
        ('self.options["global_rank"] == 0', True),
        ('0 != self.options["frequency"]', False),
        ('self.options["frequency"] == 0', False),
        ('self.options["rank"] >= 0', False),
    ],
)
def test_a_rank_of_settings(tmp_path, test, told):
    added = ADDED.replace('self.options["rank"] == 0', test)
    found = told_in_files(tmp_path, {"base.py": BASE, "sharpen.py": added}, {"XLA418"})
    assert found == ({("sharpen.py", 28, "XLA418")} if told else set())
