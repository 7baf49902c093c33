"""Loaders whose batches torch's ``BatchSampler`` makes (XLA203, XLA402).

All programs are invented. ``# !XLA203`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
from shop import OwnBatches, data
def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 2).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    order = {order}
    batches = {batches}
    loader = DataLoader(data, batch_sampler=batches)  {mark}
    for epoch in range(3):
        for x, y in pl.MpDeviceLoader(loader, device):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            xm.optimizer_step(sgd)
torch_xla.launch(main)
"""
SHARED = "DistributedSampler(data, xr.world_size(), index)"


@pytest.mark.parametrize(
    ("order", "batches", "mark"),
    [
        ("RandomSampler(data)", "BatchSampler(order, 16, True)", "# !XLA402"),
        (SHARED, "BatchSampler(order, 16, drop_last=False)  # !XLA203", ""),
        (SHARED, "BatchSampler(order, 16, True)", ""),
        (SHARED, "BatchSampler(order, 16, drop_last=index)", ""),
        (SHARED, "OwnBatches(order, 16, False)", ""),
        ("RandomSampler(data)", "OwnBatches(order, 16, True)", ""),
    ],
)
def test_a_batch_sampler_says_what_a_loader_would(order: str, batches: str, mark: str):
    source = PROGRAM.format(order=order, batches=batches, mark=mark)
    told = {(row, code) for row, code in found(source) if code in {"XLA203", "XLA402"}}
    assert told == marks(source)
