"""Loops that take a number and a batch of a loader that gives the batch alone.

All programs are invented. ``# !XLA801`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset


"""

PROGRAMS = {
    "XLA801: what the function of DataParallel is given": """\
def epoch(net, batches, device, context):
    for x, (pixels, label) in batches:  # !XLA801
        loss = net(pixels, label)
        loss.backward()
        xm.optimizer_step(context.optimizer)
        print(x)


def numbered(net, batches, device, context):
    for x, (pixels, label) in enumerate(batches):
        net(pixels, label)


def main(net, rows, cores):
    spread = dp.DataParallel(net, device_ids=cores)
    spread(epoch, DataLoader(rows))
    spread(numbered, DataLoader(rows))
""",
    "XLA801: loaders for one device": """\
def main(net, rows, device):
    feed = pl.MpDeviceLoader(DataLoader(rows), device)
    for step, batch in feed:  # !XLA801
        net(batch, step)
    for n, (pixels, label) in feed:  # !XLA801
        if n % 20 == 0:
            print(n)
        net(pixels, label)
    one = pl.ParallelLoader(rows, [device])
    for _, (pixels, label) in one.per_device_loader(device):  # !XLA801
        net(pixels, label)
    return [net(xy) for _, xy in feed]  # !XLA801
""",
    "XLA801: pairs that are batches": """\
def main(net, rows, device, plain):
    feed = pl.MpDeviceLoader(DataLoader(rows), device)
    for step, batch in enumerate(feed):
        net(batch, step)
    for pixels, label in feed:
        net(pixels, label)
    for pixels, (label, weight) in feed:
        net(pixels, label, weight)
    for _, label in feed:
        print(label)
    for index, sample in feed:
        net(index, sample)
    for step, batch in plain:
        net(batch)
""",
    "XLA801: samples that come with their number": """\
class Numbered(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return index, self.rows[index]


def main(net, rows, device):
    for _, batch in pl.MpDeviceLoader(DataLoader(Numbered(rows)), device):
        net(batch)
""",
    "XLA801: a stream of samples with two labels": """\
class Twice(torch.utils.data.IterableDataset):
    def __iter__(self):
        for row in open("rows.txt"):
            yield read(row), (rate(row), kind(row))


def main(net, rows, device):
    for _, (rate, kind) in pl.MpDeviceLoader(DataLoader(Twice()), device):
        net(rate, kind)
""",
    "XLA801: either a loader or its enumeration": """\
def epoch(net, numbered):
    for step, batch in numbered:
        net(batch, step)


def main(net, rows, device):
    epoch(net, enumerate(pl.MpDeviceLoader(DataLoader(rows), device)))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])
