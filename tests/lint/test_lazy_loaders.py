"""Where graphs end: in generator expressions over device loaders, and in helpers."""

from __future__ import annotations

import pytest
from rule_helpers import codes, marked, rows

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


HELPER = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch.utils.data import DataLoader


def end_step():
    if torch_xla is not None:
        xm.mark_step()


def main(samples, every):
    place = torch_xla.device()
    net = nn.Linear(8, 2).to(place)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for number, row in enumerate(DataLoader(samples)):
        net(row.to(place)).mean().backward()
        if (number + 1) % every == 0:
            steps.step()
            steps.zero_grad()
            end_step()  # here
"""


def test_a_graph_of_several_batches_is_told_in_the_loop():
    assert rows(HELPER, "XLA212") == marked(HELPER)
    assert not rows(HELPER.replace("            end_step()", "        end_step()"), "XLA212")
