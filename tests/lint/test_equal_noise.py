"""Noise of the host after one seed for all cores, and conditions that hold on other devices too.

All programs are invented. ``# !XLA434`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import os

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn

ON_TPU = bool(os.environ.get("ON_TPU"))


"""
PAINTER = """\
def paint(rank, rows):
    SEED
    place = torch_xla.device()
    painter = nn.Linear(64, 32).to(place)
    steps = torch.optim.Adam(painter.parameters())
    for row in pl.MpDeviceLoader(rows, place):
        noise = torch.randn(row.shape[0], 64)MARK
        loss = (painter(noise.to(place)) - row).pow(2).mean()
        times = torch.randint(0, 1000, (row.shape[0],)).to(place)MARK
        loss = loss * times.float().mean()
        if torch.rand(1) < 0.1:
            loss = loss * 2
        once = torch.rand(1).to(place)
        shares = torch.randn(xr.world_size() * 8, 64)
        loss = loss + painter(shares[rank * 8 : rank * 8 + 8].to(place)).mean() * once
        loss.backward()
        xm.optimizer_step(steps)


xmp.spawn(paint, args=([],))
"""

PROGRAMS = {
    "XLA434: one seed": PAINTER.replace("SEED", "torch.manual_seed(1)").replace(
        "MARK", "  # !XLA434"
    ),
    "XLA434: a seed of each core": PAINTER.replace("SEED", "torch.manual_seed(1 + rank)").replace(
        "MARK", ""
    ),
    "XLA434: no seed": PAINTER.replace("SEED", "print(rank)").replace("MARK", ""),
    "XLA434: numbers of its own": PAINTER.replace("SEED", "torch.manual_seed(1)")
    .replace("64)MARK", "64, generator=torch.Generator().manual_seed(rank))")
    .replace("MARK", "  # !XLA434"),
    "XLA401 XLA406 XLA425: the master on TPUs, and whoever runs elsewhere": """\
def work(rank, rows):
    place = torch_xla.device() if ON_TPU else torch.device("cpu")
    net = nn.Linear(8, 2).to(place)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for number, row in enumerate(rows):
        loss = net(row.to(place)).mean()
        loss.backward()
        if ON_TPU:
            xm.optimizer_step(steps)
        else:
            steps.step()
        if number % 50 == 0 and (not ON_TPU or xr.global_ordinal() == 0):
            print(loss.cpu())  # !XLA425
        if ON_TPU:
            xm.mark_step()
    if not ON_TPU or xm.is_master_ordinal():
        print("done")
        open("done.txt", "w").write("done")


xmp.spawn(work, args=([],))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])
