"""Values that come through ``*x.shape, x.device`` and ``functools.reduce``."""

from __future__ import annotations

from rule_helpers import found, marks

PROGRAM = """\
from functools import reduce

import pytorch_lightning as pl
import torch
from torch import nn


def without(x, kinds):
    start = torch.full_like(x, False, dtype=torch.bool)
    return reduce(lambda done, kind: done | (x == kind), kinds, start)


def some(mask, share):
    rows, columns, place = *mask.shape, mask.device
    drawn = torch.rand((rows, columns), device=place)
    return drawn.masked_fill(~mask, -1.0) > share


def of_the_host(mask):
    first, *rest, place = mask.shape[0], 1, 2, "cpu"
    return torch.ones(first, device=place).nonzero()


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.kinds = set([*kinds, 3])
        self.layer = nn.Linear(8, 8)

    def forward(self, x, **more):
        picked = some(~without(x, self.kinds), 0.15)
        places = torch.nonzero(picked, as_tuple=True)  # !XLA201
        return self.layer(x)[picked].sum() + len(places)  # !XLA202


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net([1, 2])

    def training_step(self, batch, index):
        x, mask = batch
        return self.net(x.squeeze(), mask=mask)


pl.Trainer(accelerator="tpu", devices=8).fit(Module())
"""


def test_each_name_gets_what_stands_at_its_place_and_a_fold_gives_what_its_function_gives():
    asked = {"XLA201", "XLA202", "XLA204"}
    assert {one for one in found(PROGRAM) if one[1] in asked} == marks(PROGRAM)
