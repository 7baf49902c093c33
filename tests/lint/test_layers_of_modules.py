"""Layers of classes that nobody has read: what they give is on the device of what they get."""

import pytest

from tests.lint.rule_helpers import rows

MODULE = """\
import lightning as L
import torch
from torch import nn

from nets import {made}


class Painter(L.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.{name} = {made}(width)

    def training_step(self, batch, batch_idx):
        pixels, words = batch
        drawn = self.{name}(pixels)
        print(drawn)
        return nn.functional.mse_loss(drawn, pixels)


trainer = L.Trainer(accelerator="tpu", max_steps=1000)
trainer.fit(Painter(64))
"""


@pytest.mark.parametrize(
    ("name", "made", "told"),
    [
        ("encoder", "ImageEncoder", True),
        ("net", "Mlp", True),
        ("matcher", "HungarianMatcher", False),
        ("score", "RougeScorer", False),
    ],
)
def test_what_a_layer_gives_is_on_the_device(name, made, told):
    assert rows(MODULE.format(name=name, made=made), "XLA103") == ([16] if told else [])
