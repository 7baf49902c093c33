"""An optimizer made in one file, of a model that a second one moves, in a function of a third."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rule_helpers import marked, rows, told_in_files

if TYPE_CHECKING:
    from pathlib import Path

PLACE = """
def place(net, device="xla"):
    net.to(device)
"""
LOOP = """
import torch_xla.core.xla_model as xm
from placing import place


def run(net, optimizer, loader):
    place(net)
    for x in loader:
        net(x.to(xm.xla_device())).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
"""
MAKE = """
import torch
import torch_xla
from loops import run
from torchvision.models import resnet18


def train(loader, given=None):
    net = {net}
    {before}
    optimizer = torch.optim.AdamW(net.parameters())
    run(net, optimizer, loader)
"""
MAIN = """
from making import train

{lines}
train(loader{given})
"""


@pytest.mark.parametrize(
    ("net", "before", "told"),
    [
        ("resnet18()", "", True),
        ("resnet18()", "net.train()", True),
        ("resnet18()", 'net.to("xla")', False),
        ("given", "", False),
        ("given.net", "", False),
    ],
)
def test_a_function_that_another_file_calls_is_run_from_its_own_models(
    tmp_path: Path, net: str, before: str, told: bool
) -> None:
    """What the caller gives may have been moved there: of that nothing is said."""
    files = {
        "placing.py": PLACE,
        "loops.py": LOOP,
        "making.py": MAKE.format(net=net, before=before),
        "main.py": MAIN.format(lines="loader = []", given=""),
    }
    expected = {("making.py", 11, "XLA305")} if told else set()
    assert told_in_files(tmp_path, files, {"XLA305"}) == expected


KEPT = """
import torch
import torch_xla.core.xla_model as xm
from torch import nn


class Kept(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net


class Smooth(Kept):
    pass


class Sharp(Kept):
    def __init__(self, net, much):
        super().__init__(net)
        self.much = much


def epoch(criterion, optimizer, loader, device=None):
    if device is not None:
        criterion.net.to(device)
    for x in loader:
        criterion(x.to(device)).backward()
        optimizer.step()


def make(net):
    return torch.optim.AdamW(net.parameters())  # here


def on_tpu(net, loader):
    optimizer = make(net)
    criterion = {kept}
    epoch(criterion, optimizer, loader, device={device})
    xm.mark_step()


def on_gpu(net, loader):
    optimizer = make(net)
    net.to("cuda")
    epoch(Smooth(net), optimizer, loader, "cuda")


def on_host(net, loader):
    epoch(Smooth(net), make(net), loader)
"""


@pytest.mark.parametrize(
    ("kept", "device", "told"),
    [
        ("Smooth(net)", "xm.xla_device()", True),
        ("Sharp(net, 2)", "xm.xla_device()", True),
        ("Smooth(net.base)", "xm.xla_device()", False),
        ("Sharp(net, 2)", "None", False),
        ("Sharp(net, 2)", '"cpu"', False),
    ],
)
def test_what_a_base_keeps_is_moved_where_this_call_says(
    kept: str, device: str, told: bool
) -> None:
    """The same function moves the model to a GPU for another caller."""
    program = KEPT.format(kept=kept, device=device)
    expected = marked(program) if told else []
    assert rows(program, "XLA305") == expected


AGAIN = """
import torch
import torch_xla.core.xla_model as xm


class Trainer:
    def __init__(self, net):
        self.net = net

    def make(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)  # here

    def place(self):
        self.net.to(xm.xla_device())

    def weigh(self):
        return torch.optim.Adam(self.net.parameters())

    def train(self, loader):
        optimizer = self.make()
        self.place()
        {before}
        for x in loader:
            self.net(x).mean().backward()
            xm.optimizer_step(optimizer, barrier=True)
        {behind}
"""


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        ("pass", "pass", True),
        ("pass", "self.weigh()", True),
        ("optimizer = self.weigh()", "pass", False),
    ],
)
def test_an_optimizer_made_again_counts_before_the_first_step(
    before: str, behind: str, told: bool
) -> None:
    program = AGAIN.format(before=before, behind=behind)
    assert rows(program, "XLA305") == (marked(program) if told else [])


PARTS = """\
import torch_xla.core.xla_model as xm
from engine.helpers import is_xla
from engine.samples import to_device


class LoopPart:
    def fit(self):
        for number, batch in enumerate(self.train_loader):
            self.advance(batch)

    def advance(self, batch):
        batch = to_device(batch, self.device)
        self.model(batch).sum().backward()
        if is_xla():
            xm.reduce_gradients(self.optimizer)
        self.optimizer.step()


class DevicePart:
    def place(self):
        self.device = xm.xla_device()
        self.model.to(self.device)
"""
LOADERS = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from engine.helpers import is_xla


def build(dataset):
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, drop_last=True, num_workers=2)
    if is_xla():
        loader = {made}
    return loader
"""
HELPERS = """\
import torch_xla.core.xla_model as xm


def is_xla():
    return xm.xla_device_hw(xm.xla_device()) == "TPU"
"""


@pytest.mark.parametrize(
    ("made", "told"),
    [("pl.MpDeviceLoader(loader, xm.xla_device())", False), ("list(loader)", True)],
)
def test_a_loader_that_another_part_of_the_program_makes(tmp_path, made, told):
    files = {
        "engine/__init__.py": "",
        "engine/helpers.py": HELPERS,
        "engine/loop.py": PARTS,
        "engine/loaders.py": LOADERS.format(made=made),
    }
    found = told_in_files(tmp_path, files, {"XLA603"})
    assert found == ({("engine/loop.py", 12, "XLA603")} if told else set())
