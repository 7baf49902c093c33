"""A device loader that is asked for its sampler has none: the epoch is never told (XLA403)."""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def run(index, net, data, on_tpu):
    device = torch_xla.device()
    sampler = DistributedSampler(data)
    plain = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    batches = {loader}
    for epoch in range(8):
        {before}
        if {asked}:
            {tells}  {mark}
        for x in batches:
            net(x.to(device)).sum().backward()
torch_xla.launch(run, args=(make(), data, True))
"""
LOADERS = {
    "pl.MpDeviceLoader(plain, device)": True,
    "pl.ParallelLoader(plain, [device]).per_device_loader(device)": True,
    "pl.MpDeviceLoader(plain, device) if on_tpu else plain": True,
    "plain": False,
}
ASKED = {
    'hasattr(batches, "sampler") and hasattr(batches.sampler, "set_epoch")': "batches.sampler",
    "isinstance(batches, DataLoader) and isinstance(batches.sampler, DistributedSampler)": (
        "batches.sampler"
    ),
    'hasattr(batches, "set_epoch")': "batches",
    "held is not None": "held",
}
BEFORE = 'held = getattr(batches, "sampler", None)'


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("loader", LOADERS)
def test_the_sampler_of_a_device_loader(loader, asked):
    mark = "# !XLA403" if LOADERS[loader] else ""
    tells = f"{ASKED[asked]}.set_epoch(epoch)"
    program = PROGRAM.format(loader=loader, before=BEFORE, asked=asked, tells=tells, mark=mark)
    assert told("XLA403: a device loader", program) == marks(program)


@pytest.mark.parametrize(
    ("asked", "tells"),
    [
        ('hasattr(plain, "sampler")', "plain.sampler.set_epoch(epoch)"),
        ("isinstance(plain.sampler, DistributedSampler)", "plain.sampler.set_epoch(epoch)"),
        ("not on_tpu", "batches.sampler.set_epoch(epoch)"),
        ("epoch", "sampler.set_epoch(epoch)"),
    ],
)
def test_the_sampler_of_the_loader_itself(asked, tells):
    device_loader = next(iter(LOADERS))
    program = PROGRAM.format(loader=device_loader, before="", asked=asked, tells=tells, mark="")
    assert told("XLA403: a plain loader", program) == set()
