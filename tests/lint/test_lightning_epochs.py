"""What modules of Lightning log and print when an evaluation ends, by the hooks of before 2.0."""

from __future__ import annotations

from rule_helpers import found, marks

ENDS = """
import pytorch_lightning as pl
import numpy as np
import torch
import torch.distributed as dist
from sklearn.metrics import roc_auc_score


class Net(pl.LightningModule):
    def validation_step(self, batch, number):
        x, y = batch
        out = self(x)
        return {"val_loss": out.mean(), "out": out.detach(), "y": y}

    def validation_epoch_end(self, outputs):
        loss = torch.stack([one["val_loss"] for one in outputs]).mean()
        self.log("val_loss", loss)  # !XLA427
        self.log("val_synced", loss, sync_dist=True)
        out = torch.cat([one["out"] for one in outputs]).cpu().numpy()
        y = torch.cat([one["y"] for one in outputs]).cpu().numpy()
        self.log("val_auc", roc_auc_score(y, out))  # !XLA427
        self.log_dict({"val_std": np.std(out)})  # !XLA427
        every = self.all_gather(torch.cat([one["out"] for one in outputs]))
        self.log("val_every", every.mean())
        total = torch.stack([one["val_loss"] for one in outputs]).sum()
        dist.all_reduce(total)
        self.log("val_total", total)
        self.log("count", float(len(outputs)))
        for i, part in enumerate(outputs):
            print(part)  # !XLA401
        if loss.item() < 3:
            self.best = loss.item()

    def test_epoch_end(self, outputs):
        losses = [one["val_loss"].item() for one in outputs]
        scores = np.mean(losses)
        self.log("test_loss", scores)  # !XLA427


pl.Trainer(accelerator="tpu", devices=8).fit(Net())
"""


def test_outputs_of_an_evaluation_are_those_of_one_core():
    told = {(row, code) for row, code in found(ENDS) if code in {"XLA401", "XLA427"}}
    assert told == marks(ENDS)


def test_one_core_has_the_whole_evaluation():
    alone = ENDS.replace("devices=8", "devices=1")
    assert not {code for _, code in found(alone)} & {"XLA401", "XLA427"}
