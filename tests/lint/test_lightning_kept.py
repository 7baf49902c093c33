"""What modules of Lightning keep from batch to batch, and records that hold a batch."""

from __future__ import annotations

from rule_helpers import found, marks

KEPT = """
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 3)
        self.scores = torch.empty(0)
        self.kept = []
        self.recent = []
        self.queue = torch.zeros(10, 3)

    def training_step(self, batch, number):
        out = self.net(batch)
        self.queue = torch.cat([self.queue, out.detach()])[-10:]
        self.kept.append(out.mean().detach())
        mean = torch.stack(self.kept).mean()  # !XLA206
        self.recent.append(out.detach())
        self.recent = self.recent[-3:]
        near = torch.cat(self.recent)
        parts = []
        for row in range(3):
            parts.append(out[row])
        return out.mean() + mean + torch.stack(parts).mean() + near.mean()

    def validation_step(self, batch, number):
        out = self.net(batch)
        self.scores = torch.cat([self.scores, out])  # !XLA206
        self.add(out)
        both = out
        both = torch.cat([both, out])

    def add(self, out):
        self.all = torch.cat([self.all, out])  # !XLA206

    def on_validation_epoch_end(self):
        self.log("mean", torch.cat([self.scores, self.all]).mean(), sync_dist=True)
        self.scores = torch.empty(0)
        self.kept.clear()


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


def test_what_steps_join_to_what_they_kept_grows():
    told = {(row, code) for row, code in found(KEPT) if code == "XLA206"}
    assert told == marks(KEPT)


RECORDS = """
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import lightning as L
import torch

Pair = namedtuple("Pair", ["x", "y"])
Named = namedtuple("Named", "x y")


class Sample(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@dataclass
class Batch:
    image: torch.Tensor
    label: torch.Tensor

    def known(self):
        return self.image[self.label > 0]  # !XLA202


class Net(L.LightningModule):
    def training_step(self, batch, number):
        x, y = batch["image"], batch["label"]
        pair = Pair(x, y)
        one = pair.x[pair.y > 0]  # !XLA202
        named = Named(y=y, x=x)
        two = named.x[named.y > 0]  # !XLA202
        left, right = Pair(x, y)
        three = left[right > 0]  # !XLA202
        sample = Sample(image=x, label=y)
        four = sample.image[sample.label > 0]  # !XLA202
        sizes = Pair(3, 4)
        five = x[:, sizes.x]
        return one.mean() + two.mean() + three.mean() + four.mean() + Batch(**batch).known().mean()


L.Trainer(accelerator="tpu", devices=1).fit(Net())
"""


def test_records_hold_the_parts_of_a_batch():
    told = {(row, code) for row, code in found(RECORDS) if code == "XLA202"}
    assert told == marks(RECORDS)
