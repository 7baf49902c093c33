"""Generator expressions over device loaders: their next element ends the graph."""

from __future__ import annotations

import pytest
from rule_helpers import codes

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn
from torch.utils.data import DataLoader


def pixels(loader, place):
    return (row["pixels"] for row in pl.MpDeviceLoader(loader, place))


def listed(loader, place):
    return [row["pixels"] for row in pl.MpDeviceLoader(loader, place)]


def counted(rows):
    for number, row in enumerate(rows):
        yield number, row


def work(rank, rows):
    place = torch_xla.device()
    net = nn.Linear(8, 2).to(place)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    feed = (row.float() for row in pl.MpDeviceLoader(rows, place))
    plain = (row.to(place) for row in DataLoader(rows))
    for {target} in {over}:
        net(row).mean().backward()
        xm.optimizer_step(steps)


xmp.spawn(work, args=([],))
"""


@pytest.mark.parametrize(
    ("target", "over", "ended"),
    [
        ("row", "pixels(rows, place)", True),
        ("row", "feed", True),
        ("row", "(row for row in pl.MpDeviceLoader(rows, place))", True),
        ("_, row", "counted(pixels(rows, place))", True),
        ("row", "listed(rows, place)", False),
        ("row", "plain", False),
    ],
)
def test_what_is_lazy_ends_the_graph(target, over, ended):
    assert ("XLA301" not in codes(PROGRAM.format(target=target, over=over))) is ended
