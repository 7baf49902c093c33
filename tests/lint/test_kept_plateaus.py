"""``ReduceLROnPlateau`` that a LightningModule keeps and steps by itself (XLA419)."""

from __future__ import annotations

import pytest
from rule_helpers import codes

NET = """
import hydra
import lightning as L
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Net(L.LightningModule):
    def __init__(self, settings, body):
        super().__init__()
        self.settings, self.body = settings, body

    def training_step(self, batch, index):
        parts = {key: self.body(part) for key, part in batch.items()}
        loss = torch.stack(list(parts.values())).mean()
        {step}
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        {made}
        return optimizer


L.Trainer(accelerator="tpu", devices={cores}).fit(Net({}, body), rows)
"""
MADE = {
    "at once": "self.plateau = ReduceLROnPlateau(optimizer)",
    "by a name": "plateau = ReduceLROnPlateau(optimizer)\n        self.plateau = plateau",
    "of settings": (
        "plateau = hydra.utils.instantiate(self.settings, optimizer=optimizer)\n"
        "        if isinstance(plateau, ReduceLROnPlateau):\n"
        "            self.plateau = plateau"
    ),
}
STEP = "self.plateau.step(loss.detach().item())"


def told(made, step=STEP, cores="8"):
    text = NET.replace("{made}", made).replace("{step}", step).replace("{cores}", cores)
    return "XLA419" in codes(text)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("step", [STEP, "self.plateau.step(loss)", "self.plateau.step(loss.cpu())"])
def test_a_plateau_that_follows_each_cores_loss(made, step):
    assert told(MADE[made], step)
    assert not told(MADE[made], step, cores="1")


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (MADE["at once"], "mean = self.all_gather(loss).mean()\n        self.plateau.step(mean)"),
        (MADE["at once"], "self.other.step(loss)"),
        (MADE["at once"], "self.plateau.step(self.best)"),
        ("self.plateau = torch.optim.lr_scheduler.StepLR(optimizer, 3)", "self.plateau.step()"),
        (
            MADE["of settings"].replace("isinstance(", "not isinstance("),
            "self.plateau.step(loss)",
        ),
    ],
)
def test_other_schedulers_and_numbers_are_left_alone(made, step):
    assert not told(made, step)
