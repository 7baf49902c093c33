"""What a helper does in which order, and what is made before a loop or before a move.

All programs are invented. ``# !XLA415`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

BEGINS = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import nn
"""
PROGRAMS = {
    "XLA415: one ParallelLoader for all epochs": """
def main(net, adam, rows, device):
    batches = pl.ParallelLoader(rows, [device])
    for epoch in range(9):
        for x, y in batches.per_device_loader(device):  # !XLA415
            step(net, adam, x, y)


def anew(net, adam, rows, device):
    for epoch in range(9):
        batches = pl.ParallelLoader(rows, [device])
        for x, y in batches.per_device_loader(device):
            step(net, adam, x, y)


def once(net, adam, rows, device):
    batches = pl.ParallelLoader(rows, [device])
    for x, y in batches.per_device_loader(device):
        step(net, adam, x, y)


def step(net, adam, x, y):
    nn.functional.cross_entropy(net(x), y).backward()
    adam.step()
""",
    "XLA113: a helper that ends the graph behind what it gives back, or before it": """
class State:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer


def finished(state, batch):
    loss, losses = state.model(batch)
    loss.backward()
    state.optimizer.step()
    torch_xla.sync()
    return losses


def pending(state, batch):
    torch_xla.sync()
    loss, losses = state.model(batch)
    loss.backward()
    state.optimizer.step()
    return losses


def main(model, optimizer, rows):
    device = torch_xla.device()
    state = State(model.to(device), optimizer)
    for at, batch in enumerate(pl.MpDeviceLoader(rows, device)):
        losses = finished(state, batch)
        if at % 50 == 0:
            print(f"{losses.get('all', 0):.4f}")


def too_early(model, optimizer, rows):
    device = torch_xla.device()
    state = State(model.to(device), optimizer)
    for at, batch in enumerate(pl.MpDeviceLoader(rows, device)):
        losses = pending(state, batch)
        if at % 50 == 0:
            print(f"{losses.get('all', 0):.4f}")  # !XLA113
""",
    "XLA305: moved by hand before Accelerate prepares it": """
def main(rows):
    accelerator = Accelerator()
    if accelerator.distributed_type == DistributedType.XLA:
        accelerator.print("on TPU cores")
    net = nn.Linear(8, 8)
    adam = torch.optim.AdamW(net.parameters())  # !XLA305
    net.to(accelerator.device)
    net, adam, rows = accelerator.prepare(net, adam, rows)


def moved_by_prepare(rows):
    accelerator = Accelerator()
    net = nn.Linear(8, 8)
    adam = torch.optim.AdamW(net.parameters())
    net, adam, rows = accelerator.prepare(net, adam, rows)
    net.to(accelerator.device)


def moved_first(rows):
    accelerator = Accelerator()
    net = nn.Linear(8, 8)
    net.to(accelerator.device)
    adam = torch.optim.AdamW(net.parameters())
    return accelerator.prepare(net, adam, rows)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_order(name):
    program, code = BEGINS + PROGRAMS[name], name.partition(":")[0]
    assert {one for one in found(program) if one[1] == code} == marks(program)
