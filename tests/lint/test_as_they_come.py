"""Causes that programs showed which nobody had chosen: one program for each.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

XM = """\
import os

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""

PROGRAMS = {
    "XLA303 XLA426 XLA428 XLA429: cores of a program that asks for SPMD by mistake": f"""\
{XM}
os.environ["XLA_USE_SPMD"] = "1"  # !XLA429


def run(index, rows):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)  # !XLA426
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xr.world_size())
    for images in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        model(images).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA303
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    xmp.spawn(run, args=(load(),))
""",
    "XLA319: a helper that ends the graph behind the model": f"""\
{XM}
def by_parts(model, parts):
    total = 0.0
    for part in parts:
        total = total + model(part).mean()
        torch_xla.sync()  # !XLA319
    return total


def whole(model, parts):
    loss = model(torch.stack(parts)).mean()
    torch_xla.sync()  # !XLA319
    return loss


def train(model, data, settings):
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = by_parts if settings.parts else whole
    for parts in data:
        optimizer.zero_grad()
        loss = step(model, parts)
        loss.backward()
        optimizer.step()
""",
    "XLA319: a helper that ends it before the model": f"""\
{XM}
def whole(model, parts):
    torch_xla.sync()
    return model(torch.stack(parts)).mean()


def train(model, data):
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parts in data:
        optimizer.zero_grad()
        whole(model, parts).backward()
        optimizer.step()
""",
    "XLA416: a loader in the place of the device": f"""\
{XM}
def train(model, rows):
    device = torch_xla.device()
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    loaders = pl.ParallelLoader(loader, [device])
    for images in loaders.per_device_loader(loader):  # !XLA416
        model(images)
    for images in loaders.per_device_loader(device):
        model(images)
""",
    "XLA436: a clip of what neuronx_distributed divides": f"""\
{XM}
from neuronx_distributed.parallel_layers import parallel_state


def train(net, images, optimizer):
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=xr.world_size())
    model = net.to(torch_xla.device())
    model(images).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA436
    optimizer.step()
""",
    "XLA701: a lost variable that an attribute remembers": f"""\
{XM}
class Trainer:
    def __init__(self, net):
        self.net = net
        self.on_tpu = True if "COLAB_TPU_ADDR" in os.environ else False  # !XLA701
        self.said = "COLAB_TPU_ADDR" in os.environ

    def fit(self, data):
        if self.on_tpu:
            xmp.spawn(self.run, args=(data,))
        if self.said:
            print("on Colab")
""",
    "XLA101: parts of a program in a dictionary": f"""\
{XM}
def train(parts):
    parts["model"].train()
    for images, labels in parts["loader"]:
        parts["optimizer"].zero_grad()
        parts["loss_fn"](parts["model"](images), labels).backward()
        xm.optimizer_step(parts["optimizer"])


def evaluate(parts):
    found = []
    for images, labels in parts["loader"]:
        with torch.no_grad():
            outputs = parts["model"](images)
        found += outputs.cpu().numpy().tolist()  # !XLA101
        found += labels.cpu().numpy().tolist()  # !XLA101
    return found
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_stands_at_its_lines(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


ACCUMULATED = """\
{first}
import torch_xla
import torch_xla.core.xla_model as xm
{second}

def run(index, model, optimizer, rows):
    model.to(torch_xla.device())
    for step, images in enumerate(rows):
        model(images).mean().backward()
        if (step + 1) % 4 == 0:
            xm.reduce_gradients(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()


{last}
"""
OWN = "from torch.nn.utils import clip_grad_norm_"
SCRIPT = 'if __name__ == "__main__":\n    torch_xla.launch(run, args=load())'


@pytest.mark.parametrize(
    ("first", "second", "last", "rows"),
    [
        (OWN, "", SCRIPT, 0),
        ("", OWN, SCRIPT, 1),
        (OWN, "", "torch_xla.launch(run, args=load())", 1),
    ],
)
def test_a_clip_that_is_imported_before_torch_xla_keeps_the_reduction(first, second, last, rows):
    """Measured on torch_xla 2.9; a module may be imported behind torch_xla, a script is not."""
    program = ACCUMULATED.format(first=first, second=second, last=last)
    assert len(told("XLA303: any", program)) == rows
