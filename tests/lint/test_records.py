"""What programs hand about in objects of a few fields, and what reads them.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import types
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
LOOP = """\
def train(net, batches, adam, criterion):
    device = torch_xla.device()
    net.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        adam.zero_grad()
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
        xm.optimizer_step(adam)
        %s
"""
RECORD = """\
@dataclass
class Result:
    step: int
    loss: torch.Tensor
    parts: dict = field(default_factory=dict)
"""


def program(classes, line):
    return f"{HEAD}{classes}{LOOP % line}"


PROGRAMS = {
    "a dataclass": program(
        RECORD, "result = Result(step, loss)\n        print(result.loss.item())  # !XLA101"
    ),
    "a dataclass, its other fields": program(
        RECORD, "result = Result(step, loss)\n        print(float(result.step), result.step)"
    ),
    "a dataclass, by names": program(
        RECORD,
        "result = Result(loss=loss, step=step)\n        print(result.loss.item())  # !XLA101",
    ),
    "a dataclass of a dataclass": program(
        f"{RECORD}@dataclass\nclass Named(Result):\n    name: str = ''\n",
        "one = Named(step, loss, {}, 'a')\n        print(one.loss.item())  # !XLA101",
    ),
    "a dataclass with a method that reads": program(
        f"{RECORD}    def row(self):\n        return [self.step, self.loss.item()]  # !XLA101\n",
        "print(Result(step, loss).row())",
    ),
    "a dataclass with a property that reads": program(
        f"{RECORD}    @cached_property\n    def worth(self):\n"
        "        return self.loss.item()  # !XLA101\n",
        "print(Result(step, loss).worth)",
    ),
    "a tuple with names": program(
        "class Result(NamedTuple):\n    step: int\n    loss: torch.Tensor\n",
        "result = Result(step, loss)\n        print(result.loss.item())  # !XLA101",
    ),
    "a namespace": program(
        "",
        "now = types.SimpleNamespace(loss=loss)\n        print(now.loss.item())  # !XLA101",
    ),
    "an ordered dictionary": program(
        "",
        "row = OrderedDict()\n        row['loss'] = loss\n"
        "        for name, value in row.items():\n"
        "            print(name, value.item())  # !XLA101",
    ),
    "an ordered dictionary of pairs": program(
        "",
        "row = OrderedDict([('loss', loss), ('mean', out.mean())])\n"
        "        for value in row.values():\n"
        "            print(value.item())  # !XLA101",
    ),
    "an attribute that is set by its name": program(
        "class State:\n    pass\nstate = State()\n",
        "for name, value in zip(('loss', 'out'), (loss, out)):\n"
        "            setattr(state, name, value)\n"
        "        setattr(state, 'loss', loss)\n"
        "        print(state.loss.item())  # !XLA101",
    ),
    "a closure that the optimizer calls": program(
        "",
        "def closure():\n"
        "            worth = criterion(net(x), y)\n"
        "            worth.backward()\n"
        "            print(worth.item())  # !XLA101\n"
        "            return worth\n"
        "        adam.step(closure)",
    ).replace("adam", "optimizer"),
    "a logger of the program's own": program(
        "class Logger:\n    def log(self, name, value):\n"
        "        print(name, value.item())  # !XLA101\nlogger = Logger()\n",
        "logger.log('loss', loss)",
    ),
    "a logger of the program's own that keeps": program(
        "class Logger:\n    def __init__(self):\n        self.rows = []\n"
        "    def log(self, name, value):\n"
        "        self.rows.append(value.detach())\nlogger = Logger()\n",
        "logger.log('loss', loss)",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_fields_of_records_are_known(name):
    text = PROGRAMS[name]
    told = {(row, code) for row, code in found(text) if code in {"XLA101", "XLA102", "XLA103"}}
    assert told == marks(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_on_a_gpu_is_left_alone(name):
    text = PROGRAMS[name].replace("torch_xla.device()", 'torch.device("cuda")')
    text = text.replace("pl.MpDeviceLoader(batches, device)", "batches")
    text = text.replace("xm.optimizer_step(", "print(")
    text = "\n".join(line for line in text.splitlines() if "import torch_xla" not in line)
    assert found(text) == []


#: What libraries make of tensors is where these are.
GIVEN_TWICE = """
from dataclasses import dataclass

import torch_xla.core.xla_model as xm


@dataclass
class Shape:
    rows: int
    columns: int = 8


def shapes(numbers, options):
    device = xm.xla_device()
    return [Shape(*numbers, columns=4), Shape(1, columns=2), Shape(rows=1, **options)], device
"""


def test_a_field_after_unpacked_arguments_stops_nothing():
    assert codes(GIVEN_TWICE) == ["XLA802"]


OF_LIBRARIES = [
    ("from torchvision.utils import make_grid", "make_grid(out)"),
    ("import torchvision.transforms.functional as TF", "TF.normalize(out, 0.5, 0.5)"),
    ("from torchvision.ops import box_iou", "box_iou(out, y)"),
    ("import torchaudio", "torchaudio.functional.spectrogram(out, 0, None, 4, 2, 4, 2.0, False)"),
    ("from torchmetrics.functional import mean_squared_error as mse", "mse(out, y)"),
    ("from timm.utils import accuracy", "accuracy(out, y, topk=(1, 5))[0]"),
    ("import kornia", "kornia.color.rgb_to_lab(out)"),
    ("from torch_scatter import scatter_mean", "scatter_mean(out, y)"),
    ("from torch_geometric.nn import global_mean_pool", "global_mean_pool(out, y)"),
]


@pytest.mark.parametrize(("imported", "made"), OF_LIBRARIES)
def test_what_a_library_makes_of_device_tensors_is_on_the_device(imported, made):
    text = program(f"{imported}\n", f"print(f'{{{made}.mean():.3f}}')  # !XLA103")
    told = {(row, code) for row, code in found(text) if code in {"XLA101", "XLA102", "XLA103"}}
    assert told == marks(text)


@pytest.mark.parametrize(("imported", "made"), OF_LIBRARIES)
def test_what_a_library_makes_of_host_tensors_is_on_the_host(imported, made):
    line = f"out, y = torch.ones(3, 4), torch.ones(3)\n        print(f'{{{made}.mean():.3f}}')"
    told = {code for _, code in found(program(f"{imported}\n", line))}
    assert not told & {"XLA101", "XLA102", "XLA103"}
