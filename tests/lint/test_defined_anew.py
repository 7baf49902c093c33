"""Notebooks that define the same names in two cells, once for GPUs and once for TPUs.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import torch
from torch.utils.data import DataLoader
"""
XLA = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
GPU_CELL = """\
def fit(net, batches, adam, where):
    for x, y in batches:
        x, y = x.to(where), y.to(where)
        adam.zero_grad()
        loss = net(x, y)
        loss.backward()
        adam.step()
        print(loss.item())
def look(net, batches, where):
    for x, y in batches:
        if net(x.to(where), None).max() > 0.5:
            print(x)
def main(net, data):
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = net.to(where)
    batches = DataLoader(data, batch_size=8, shuffle=True)
    fit(net, batches, torch.optim.Adam(net.parameters()), where)
    look(net, batches, where)
    torch.save(net.state_dict(), "net.pt")
main(build(), read())
"""
TPU_CELL = """\
def fit(net, batches, adam, where):
    for x, y in pl.MpDeviceLoader(batches, where):
        adam.zero_grad()
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
        print(loss.item())  # !XLA101
def main(net, data):
    where = torch_xla.device()
    net = net.to(where)
    batches = DataLoader(data, batch_size=8, shuffle=True)  # !XLA203
    fit(net, batches, torch.optim.Adam(net.parameters()), where)
    torch.save(net.state_dict(), "net.pt")  # !XLA721
main(build(), read())
"""

ORDERS = {
    "first for GPUs": HEAD + GPU_CELL + XLA + TPU_CELL,
    "first for TPUs": HEAD + XLA + TPU_CELL + GPU_CELL,
}


@pytest.mark.parametrize("order", ORDERS)
def test_each_cell_calls_what_it_defines(order):
    program = ORDERS[order]
    assert set(found(program)) == marks(program)


def test_the_last_definition_is_what_later_calls_mean():
    program = HEAD + XLA + TPU_CELL.replace("main(build(), read())\n", "") + TPU_CELL
    told = {(row, code) for row, code in found(program) if code == "XLA101"}
    assert max(told) == max(item for item in marks(program) if item[1] == "XLA101")


def test_a_device_of_two_branches_is_the_cpu_only_in_one():
    program = """\
import torch
import torch_xla.core.xla_model as xm

def main(net, loader, loss_of, tpu):
    if tpu:
        device = xm.xla_device()
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = net.to(device)
    for x, y in loader:
        loss_of(net(x.to(device)), y.to(device)).backward()
        xm.mark_step()
    torch.save(net.state_dict(), "net.pt")  # !XLA721
"""
    told = [(row, code) for row, code in found(program) if code == "XLA721"]
    assert set(told) == marks(program)


def test_a_loader_that_is_only_looked_at():
    program = """\
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader
from mydata import data, net, show

train_loader = DataLoader(data, batch_size=4, shuffle=True)
batch = next(iter(train_loader))
show(batch)
train_loader = DataLoader(data, batch_size=16, shuffle=True)  # !XLA203
device = xm.xla_device()
model = net.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in train_loader:
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
"""
    assert {(row, code) for row, code in found(program) if code == "XLA203"} == marks(program)
