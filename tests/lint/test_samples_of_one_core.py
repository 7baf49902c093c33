"""A sampler of one replica over samples that only this core has."""

from __future__ import annotations

import pytest
from rule_helpers import codes

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from rows import read

def work(rank):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 2).to(device)
    adam = torch.optim.Adam(net.parameters())
    {rows}
    sampler = DistributedSampler(rows, num_replicas={replicas}, rank=0, shuffle=True)
    loader = DataLoader(rows, batch_size=8, sampler=sampler, drop_last=True)
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        (net(x) - y).mean().backward()
        xm.optimizer_step(adam)

if __name__ == "__main__":
    torch_xla.launch(work)
"""
OWN = "found = read(part=rank)\n    rows = TensorDataset(torch.from_numpy(found), LABELS)"
CASES = [
    (OWN, 1, False),
    ("rows = read(FILES[rank])", 1, False),
    ("rows = read(FILES[xm.get_ordinal()])", 1, False),
    ("rows = torch.utils.data.Subset(ROWS, range(rank, 80, 8))", 1, False),
    ("rows = read(FILES)", 1, True),
    ("found = read(FILES)\n    rows = TensorDataset(torch.from_numpy(found), LABELS)", 1, True),
    (OWN, 8, True),
]


@pytest.mark.parametrize(("rows", "replicas", "told"), CASES)
def test_a_part_of_the_core_s_own_needs_no_share(rows, replicas, told):
    program = PROGRAM.replace("{rows}", rows).replace("{replicas}", str(replicas))
    assert ("XLA409" in codes(program)) is told
