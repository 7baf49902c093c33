"""A sampler that there is on several cores alone is still one that wants the epoch (XLA403)."""

from tests.lint.rule_helpers import rows

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from pictures import build, pictures


def _mp_fn(index):
    torch.manual_seed(0)
    device = torch_xla.device()
    order = None
    if xr.world_size() > 1:
        order = DistributedSampler(pictures(), xr.world_size(), xr.global_ordinal())
    loader = DataLoader(pictures(), batch_size=8, sampler=order, drop_last=True, num_workers=2)
    batches = pl.MpDeviceLoader(loader, device)
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        {first}
        for x, y in batches:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""


def test_it_wants_the_epoch():
    assert rows(PROGRAM.format(first="model.train()"), "XLA403") == [17]


def test_and_may_be_told_it():
    first = "if order is not None: order.set_epoch(epoch)"
    assert rows(PROGRAM.format(first=first), "XLA403") == []
