"""``if batch is None: continue`` of one core, while the others step."""

from __future__ import annotations

import pytest
from rule_helpers import marked, rows

HEAD = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler
from songs.rows import ROWS


def collate(samples):
    kept = [sample for sample in samples if sample is not None]
    return torch.utils.data.default_collate(kept) if kept else None


def step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    xm.optimizer_step(optimizer)


def worker(index, model, args):
    device = torch_xla.device()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(ROWS, num_replicas=xr.world_size(), rank=xr.global_ordinal())
    plain = DataLoader(ROWS, batch_size=8, sampler=sampler, collate_fn=collate, drop_last=True)
    loader = pl.MpDeviceLoader(plain, device)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
"""
TAIL = """

def later(model, optimizer, batch):
    step(model, optimizer, batch)


torch_xla.launch(worker, args=(None, None))
"""

LOOPS = [
    """
        for batch in loader:
            if batch is None:
                continue  # here
            step(model, optimizer, batch)
""",
    """
        for at, batch in enumerate(loader):
            if batch is None:
                xm.master_print("nothing left", at)
                continue  # here
            optimizer.zero_grad()
            model(batch).sum().backward()
            xm.optimizer_step(optimizer)
""",
    """
        for batch in pl.ParallelLoader(plain, [device]).per_device_loader(device):
            if batch is None or args.dry: continue  # maybe
            step(model, optimizer, batch)
""",
    """
        for images, truths in plain:
            if images is None:
                continue  # here
            step(model, optimizer, images.to(device))
""",
]

HEALTHY = [
    # Behind the step: nobody waits.
    """
        for batch in loader:
            step(model, optimizer, batch)
            if batch is None:
                continue
            xm.master_print("done")
""",
    # What is called before.
    """
        for batch in loader:
            later(model, optimizer, batch)
            if batch is None:
                continue
            xm.master_print("done")
""",
    # A setting, the same on all cores.
    """
        for batch in loader:
            if args.limit is None:
                continue
            step(model, optimizer, batch)
""",
    # An iterator of unread code may say so on all cores at once.
    """
        for batch in args.stream(device):
            if batch is None:
                continue
            step(model, optimizer, batch)
""",
    # Nobody meets in an evaluation.
    """
        with torch.no_grad():
            for batch in loader:
                if batch is None:
                    continue
                model(batch)
""",
]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_core_without_a_batch_skips_the_step_alone(loop):
    text = HEAD + loop + TAIL
    assert rows(text, "XLA420") == marked(text)


@pytest.mark.parametrize("loop", HEALTHY)
def test_other_questions_for_none_are_left_alone(loop):
    assert rows(HEAD + loop + TAIL, "XLA420") == []


def test_one_core_waits_for_nobody():
    alone = HEAD.replace("sampler=sampler", "shuffle=True")
    alone = "\n".join(line for line in alone.splitlines() if "sampler" not in line)
    assert rows(alone + "\n" + LOOPS[0] + "\n\nworker(0, None, None)\n", "XLA420") == []
