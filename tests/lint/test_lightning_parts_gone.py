"""Attributes that parts of Lightning's Trainer have lost."""

from __future__ import annotations

import pytest
from rule_helpers import codes

NET = """
import pytorch_lightning as pl
import torch


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        {line}
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)]


trainer = pl.Trainer(accelerator="tpu", devices=8)
trainer.fit(Net())
"""


@pytest.mark.parametrize(
    "line",
    [
        "steps = len(self.trainer._data_connector._train_dataloader_source.dataloader())",
        "source = self.trainer._data_connector._val_dataloader_source\n        steps = len(source)",
        "steps = len(self.trainer.train_dataloader.loaders)",
        "steps = self.trainer.fit_loop.epoch_loop.batch_loop.total",
    ],
)
def test_parts_of_the_trainer_that_are_gone(line):
    assert "XLA910" in codes(NET.replace("{line}", line))


@pytest.mark.parametrize(
    "line",
    [
        "steps = self.trainer.estimated_stepping_batches",
        "steps = len(self.trainer.train_dataloader)",
        "steps = len(self.train_dataloader.loaders)",
        "steps = len(self.source.train_dataloader.loaders)",
        "steps = self.trainer.fit_loop.epoch_loop.global_step",
        "steps = self._train_dataloader_source",
    ],
)
def test_parts_that_are_there_and_others_are_left_alone(line):
    assert "XLA910" not in codes(NET.replace("{line}", line))
