"""Metrics that a program builds on torchmetrics, which bring themselves together."""

from __future__ import annotations

import pytest
from rule_helpers import codes

NET = """
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchmetrics
from torchmetrics import Metric


class Overlap({base}):
    def __init__(self):
        super().__init__()
        self.{add}("hits", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.{add}("seen", default=torch.tensor(0), dist_reduce_fx="sum")

    def keep(self, name, default, dist_reduce_fx):
        self.register_buffer(name, default)

    def update(self, guesses, truths):
        self.hits += (guesses == truths).float().sum()
        self.seen += truths.numel()

    def compute(self):
        share = self.hits / self.seen
        return {answer}


class Finer(Overlap):
    pass


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.overlap = {made}()

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.layer(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.overlap.update(self.layer(x).argmax(1), y)

    def on_validation_epoch_end(self):
        {lines}
        self.overlap.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(rows):
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(Net(), rows)
"""

ANSWERS = [
    ("share", 'self.log("overlap", self.overlap.compute())'),
    ("share", 'share = self.overlap.compute()\n        self.log("overlap", share.detach())'),
    ("(share, self.hits)", 'share, _ = self.overlap.compute()\n        self.log("overlap", share)'),
    ('{"share": share}', 'self.log("overlap", self.overlap.compute()["share"])'),
    ("share", 'self.log_dict({"overlap": self.overlap.compute()})'),
]


def program(base, made, answer, lines, add="add_state"):
    text = NET.replace("{base}", base).replace("{made}", made).replace("{add}", add)
    return text.replace("{answer}", answer).replace("{lines}", lines)


@pytest.mark.parametrize(("answer", "lines"), ANSWERS)
@pytest.mark.parametrize(
    ("base", "made"),
    [("Metric", "Overlap"), ("torchmetrics.Metric", "Overlap"), ("Metric", "Finer")],
)
def test_metrics_built_on_torchmetrics_ask_all_cores(base, made, answer, lines):
    assert "XLA427" not in codes(program(base, made, answer, lines))


@pytest.mark.parametrize(("answer", "lines"), ANSWERS)
def test_what_a_module_counts_by_itself_is_of_one_core(answer, lines):
    text = program("torch.nn.Module", "Overlap", answer, lines, add="keep")
    assert "XLA427" in codes(text)


def test_what_an_update_returns_is_of_one_core():
    text = program("Metric", "Overlap", "share", "pass").replace(
        "self.overlap.update(self.layer(x).argmax(1), y)",
        'self.log("hits", (self.layer(x).argmax(1) == y).float().mean())',
    )
    assert "XLA427" in codes(text)
