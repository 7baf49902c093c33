"""Cores that are started here and train in what another file makes of this one's classes."""

from __future__ import annotations

import pytest
from rule_helpers import codes, marks, rows

RUNNER = """
import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


class Runner:
    def __init__(self, net, data, folder):
        self.device = xm.xla_device()
        self.net = net.to(self.device)
        self.optimizer = torch.optim.SGD(self.plain.parameters(), lr=0.1)
        self.data, self.folder = data, folder
        print("ready")  # !XLA401

    @property
    def plain(self):
        return self.net

    def keep(self, state=None, name="last.pt"):
        if state is None:
            state = {"weights": self.plain.state_dict()}
        state["name"] = name
        torch.save(state, name)  # !XLA721

    def one_epoch(self, epoch):
        loader = pl.ParallelLoader(self.data, [self.device]).per_device_loader(self.device)
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            xm.optimizer_step(self.optimizer)
        print("epoch", epoch, "of", xm.xrt_world_size(), "parts")  # !XLA401

    def train(self, epochs):
        for epoch in range(epochs):
            self.one_epoch(epoch)
            self.keep({"epoch": epoch, "optimizer": self.optimizer.state_dict()})


def _mp_fn(index, args):
    torch.set_default_dtype(torch.float32)
    start_training(args)


def cli(args):
    xmp.spawn(_mp_fn, args=(args,))
"""
ASKED = ("XLA401", "XLA721")


def told(text):
    return {(row, code) for code in ASKED for row in rows(text, code)}


def test_what_the_cores_are_handed_away_to_may_train_by_a_class_of_this_file():
    assert told(RUNNER) == marks(RUNNER)


@pytest.mark.parametrize("how", ["from engine import start_training", "from .engine import *"])
def test_also_where_it_is_imported(how):
    text = RUNNER.replace("import torch\n", f"import torch\n{how}\n", 1)
    assert told(text) == marks(text)


def test_cores_that_train_here_do_not_run_a_class_that_nobody_makes():
    text = RUNNER.replace(
        "    start_training(args)\n",
        "    net = torch.nn.Linear(4, 4).to(xm.xla_device())\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for x in pl.MpDeviceLoader(args, xm.xla_device()):\n"
        "        optimizer.zero_grad()\n"
        "        net(x).sum().backward()\n"
        "        xm.optimizer_step(optimizer)\n",
    )
    assert rows(text, "XLA401") == []


def test_a_function_of_a_library_brings_nobody_back():
    text = RUNNER.replace("start_training(args)", "load(args)")
    text = text.replace("import torch\n", "import torch\nfrom torch import load\n", 1)
    assert rows(text, "XLA401") == []


def test_a_class_that_asks_for_no_other_cores_may_be_one_core_s():
    text = RUNNER.replace(', "of", xm.xrt_world_size(), "parts"', "")
    assert rows(text, "XLA401") == []


def test_a_state_of_the_host_alone_is_left_alone():
    text = RUNNER.replace("self.plain.state_dict()", "3")
    text = text.replace("self.optimizer.state_dict()", "4")
    assert "XLA721" not in codes(text)
