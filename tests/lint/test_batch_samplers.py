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


WRAPPED = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from shop import data
def feed(loader, device):
    if not has_tpu():
        return loader
    return pl.MpDeviceLoader(loader, device)
def has_tpu():
    try:
        import torch_xla
        return True
    except ImportError:
        return False
def main(rank, opts):
    device = xm.xla_device() if opts.use_tpu else torch.device("cuda")
    batches = DataLoader(data, sampler=DistributedSampler(data, opts.cores, rank))
    if opts.use_tpu:
        batches = pl.MpDeviceLoader(batches, device)
    for epoch in range(opts.epochs):
        LINE
        go_over([feed(batches, device), None], epoch)
def go_over(loaders, epoch):
    batches, _ = loaders
    for step, batch in enumerate(batches):
        pass
"""


@pytest.mark.parametrize(
    "line",
    [
        "batches.sampler.set_epoch(epoch)  # !XLA422",
        "if opts.use_tpu: print(batches.dataset)  # !XLA422",
        "if not opts.use_tpu: batches.sampler.set_epoch(epoch)",
        "if opts.distributed: batches.sampler.set_epoch(epoch)",
        "if hasattr(batches, 'sampler'): batches.sampler.set_epoch(epoch)",
    ],
)
def test_a_loader_that_is_wrapped_for_tpus_alone(line: str):
    """Where the wrapped one may not come, or nobody knows, nothing is told."""
    source = WRAPPED.replace("LINE", line)
    assert {one for one in found(source) if one[1] == "XLA422"} == marks(source)


def test_a_loader_that_a_helper_wraps():
    source = WRAPPED.replace("LINE", "print(epoch)")
    source = source.replace("    for step", "    batches.batch_size  # !XLA422\n    for step")
    assert {one for one in found(source) if one[1] == "XLA422"} == marks(source)


def test_a_loader_that_only_one_call_gives_wrapped():
    """Nobody knows whether that call is one of the TPUs' road."""
    source = WRAPPED.replace("LINE", "print(epoch)").replace(
        "        go_over([feed(", "        SIZE"
    )
    source = source.replace("SIZEbatches, device), None], epoch)", "if opts.many: size_of(batches)")
    source += "def size_of(batches):\n    return len(batches.dataset)\n"
    assert "XLA422" not in {code for _, code in found(source)}
    sure = source.replace("if opts.many: size_of", "size_of")
    assert "XLA422" in {code for _, code in found(sure)}
