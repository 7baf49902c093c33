"""What torch and Lightning did once: iterators with ``next()``, splits by each process.

All programs are invented. ``# !XLA801`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, told

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader


"""

PROGRAMS = {
    "XLA801: iterators over loaders": """\
def main(net, rows, other, old):
    loader = DataLoader(rows, batch_size=4)
    batches = iter(loader)
    first = batches.next()  # !XLA801
    again = iter(DataLoader(other)).next()  # !XLA801
    batches = iter(pl.MpDeviceLoader(loader, torch_xla.device()))
    net(batches.next())
    net(other.next(), old.loader.next(), next(iter(loader)))
    try:
        return iter(loader).next()
    except AttributeError:
        return next(iter(loader))
""",
    "XLA419: each scheduler of the master": """\
def main(net, critic, loader):
    net.to(torch_xla.device())
    critic.to(torch_xla.device())
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    other_steps = torch.optim.SGD(critic.parameters(), lr=0.1)
    plan = torch.optim.lr_scheduler.StepLR(steps, 10)
    other_plan = torch.optim.lr_scheduler.StepLR(other_steps, 10)
    for batch in loader:
        (net(batch) + critic(batch)).mean().backward()
        xm.optimizer_step(steps)
        xm.optimizer_step(other_steps)
        if xm.is_master_ordinal():
            plan.step()  # !XLA419
            other_plan.step()  # !XLA419
            plan.step()
""",
}

LIGHTNING = """\
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, random_split


class Digits(pl.LightningDataModule):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def setup(self, stage=None):
        self.train, self.test = random_split(self.rows, [0.9, 0.1]{seed})  # here

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, drop_last=True)


def main(net, rows):
    {start}
    trainer = pl.Trainer(accelerator="{kind}", devices={cores})
    trainer.fit(net, Digits(rows))
"""
SPLIT = {"seed": "", "start": "print(rows)", "kind": "tpu", "cores": 8}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])


@pytest.mark.parametrize(
    ("changed", "split"),
    [
        ({}, True),
        ({"cores": '"auto"'}, True),
        ({"cores": 1}, False),
        ({"kind": "gpu"}, False),
        ({"seed": ", torch.Generator().manual_seed(3)"}, False),
        ({"start": "pl.seed_everything(3)"}, False),
    ],
)
def test_splits_of_a_data_module(changed, split):
    text = LIGHTNING.format(**SPLIT | changed)
    rows = [row for row, line in enumerate(text.splitlines(), 1) if "# here" in line]
    assert [row for row, code in found(text) if code == "XLA448"] == (rows if split else [])


READY = """\
import torch_xla
import torch_xla.core.xla_model as xm
newer = getattr(torch_xla, "sync", None)
end = getattr(torch_xla, "sync", None) or xm.mark_step
where = getattr(torch_xla, "device", xm.xla_device)()
def asked():
    if newer is not None:
        newer()
    else:
        xm.mark_step()
def asked_the_other_way():
    if newer is None:
        xm.mark_step()
        return
    newer()
def called():
    found = getattr(torch_xla, "sync", None)
    if callable(found):
        found()
        return
    xm.mark_step()
def tried(again):
    try:
        torch_xla.sync()
        return
    except AttributeError:
        pass
    if again:
        xm.mark_step()
def tried_and_asked():
    try:
        import torch_xla
        found = getattr(torch_xla, "device", None)
        if found:
            return found()
    except ImportError:
        pass
    return xm.xla_device()
def wrong_way():
    if newer is not None:
        xm.mark_step()  # !XLA802
def nothing_newer(steps):
    try:
        import torch_xla.debug.profiler as xp
        if steps:
            return xp
    except ImportError:
        pass
    xm.mark_step()  # !XLA802
def goes_on():
    try:
        torch_xla.sync()
    except RuntimeError:
        return
    xm.mark_step()  # !XLA802
"""


def test_older_names_behind_newer_ones_that_are_asked_for():
    assert {one for one in found(READY) if one[1] == "XLA802"} == marks(READY)
