"""Loops that cores leave by what the master alone has set. ``# !XLA420`` marks what is told."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from helpers import EarlyStop


def run(index, net, loader, measure):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    stop, waited, best, watch = False, 0, 0.0, EarlyStop(patience=3)
    flag = torch.zeros(1, device=device)
    for epoch in range(30):
        for x in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(optimizer)
        if xm.is_master_ordinal():
            {on_master}
        {on_all}
        if {test}:
            break{mark}


torch_xla.launch(run, args=(None, None, None))
"""
MARK = "  # !XLA420"


@pytest.mark.parametrize(
    ("on_master", "test"),
    [
        ("stop = measure() < best", "stop"),
        ("stop = True", "epoch > 3 and stop"),
        ("waited += 1", "waited >= 5"),
        ("watch(measure(), net)", "watch.early_stop"),
        ("watch.update(measure())", "watch.stopped"),
        ("stop = True; print(stop)", "stop"),
    ],
)
def test_what_the_master_alone_knows(on_master, test):
    program = PROGRAM.format(on_master=on_master, on_all="pass", test=test, mark=MARK)
    assert [(row, "XLA420") for row in rows(program, "XLA420")] == sorted(marks(program))


@pytest.mark.parametrize(
    ("on_master", "on_all", "test"),
    [
        ("print(epoch)", "stop = epoch > 3", "stop"),
        ("stop = True", 'stop = xm.mesh_reduce("stop", stop, max)', "stop"),
        ("stop = True", "pass", 'xm.mesh_reduce("stop", stop, max)'),
        ("flag += 1", "dist.broadcast(flag, 0)", "flag[0] > 0"),
        ("flag += 1", 'xm.all_reduce("max", [flag])', "flag[0] > 0"),
        ("watch(measure(), net)", "share(watch)", "watch.early_stop"),
        ("watch(measure(), net)", "watch(epoch)", "watch.early_stop"),
        ("watch(measure(), net)", "pass", "watch.patience"),
        ("best = measure()", "pass", "epoch > 20"),
    ],
)
def test_what_all_know(on_master, on_all, test):
    program = PROGRAM.format(on_master=on_master, on_all=on_all, test=test, mark="")
    assert rows(program, "XLA420") == []
