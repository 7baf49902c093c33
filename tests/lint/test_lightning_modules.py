"""Modules of Lightning: bases of the program's own, helpers that log, what all cores write."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

BASE = """
import lightning as L
import torch
from sklearn.metrics import roc_auc_score


class Task(L.LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.kept = []

    def training_step(self, batch, number):
        loss, _ = self.compute(batch)
        return loss

    def validation_step(self, batch, number):
        loss, scores = self.compute(batch)
        self.log("val/loss", loss)  # !XLA427
        self.kept.append((scores, batch[1]))

    def on_validation_epoch_end(self):
        scores = torch.cat([one for one, _ in self.kept]).cpu().numpy()
        labels = torch.cat([one for _, one in self.kept]).cpu().numpy()
        auc = roc_auc_score(labels, scores)
        self.log("val/auc", auc)  # !XLA419 !XLA427
        print(f"auc {auc:.3f}")  # !XLA401
        self.kept.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.rate)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val/auc"}
"""
HEIR = """
import json

import torch
from torch import nn

from base import Task


class Tagger(Task):
    def __init__(self, rate):
        super().__init__(rate)
        self.body = nn.Linear(8, 1)

    def forward(self, x):
        return self.body(x)

    def compute(self, batch):
        x, y = batch
        out = self(x).squeeze(-1)
        known = y >= 0
        loss = nn.functional.binary_cross_entropy_with_logits(out[known], y[known])  # !XLA202
        if loss > 10:  # !XLA104
            keep({"loss": 10})
        return loss, torch.sigmoid(out)


def keep(numbers):
    with open("numbers.json", "w") as file:  # !XLA406
        json.dump(numbers, file)
"""
TRAIN = """
import lightning as L

from tagger import Tagger


def main():
    L.Trainer({where}, max_epochs=3).fit(Tagger(1e-3))


main()
"""
CODES = {"XLA104", "XLA202", "XLA401", "XLA406", "XLA419", "XLA427"}


def _files(where):
    return {"base.py": BASE, "tagger.py": HEIR, "train.py": TRAIN.format(where=where)}


def test_hooks_of_a_base_class_run_the_methods_of_its_heirs(tmp_path):
    files = _files('accelerator="tpu", devices=8')
    assert told_in_files(tmp_path, files, CODES) == marks_in_files(files)


def test_hooks_for_gpus_are_left_alone(tmp_path):
    assert told_in_files(tmp_path, _files('accelerator="gpu", devices=8'), CODES) == set()


def test_one_core_prints_and_writes_for_itself(tmp_path):
    told = told_in_files(tmp_path, _files('accelerator="tpu", devices=1'), CODES)
    assert {code for _, _, code in told} == {"XLA104", "XLA202"}


LOGS = """
import lightning as L
import torch
import torchmetrics
from sklearn.metrics import f1_score
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.kept = []

    def shared(self, batch, stage="train"):
        x, y = batch
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        self.log(f"{stage}_loss", loss, prog_bar=True)  # !XLA419 !XLA427 !XLA903
        self.log(stage + "_rate", 0.1)
        return loss, out

    def note(self, loss):
        self.log("running", loss, on_step=True, sync_dist=True)  # !XLA903

    def training_step(self, batch, number):
        return self.shared(batch)[0]

    def validation_step(self, batch, number):
        loss, out = self.shared(batch, "val")
        self.note(loss)
        self.kept.append({"loss": loss, "out": out, "y": batch[1]})
        scores = {"val_f1": f1_score(batch[1].cpu(), out.argmax(1).cpu()), "val_again": loss}
        self.log_dict(scores)  # !XLA427
        self.log_dict({"val_mean": loss}, sync_dist=True)
        self.accuracy.update(out, batch[1])

    def on_validation_epoch_end(self):
        out = torch.cat([one["out"] for one in self.kept])
        y = torch.cat([one["y"] for one in self.kept])
        whole, labels = self.all_gather(out), self.all_gather(y)
        self.log("val_whole", (whole.argmax(-1) == labels).float().mean())
        self.log("val_accuracy", self.accuracy.compute())
        f1 = f1_score(y.cpu().numpy(), out.argmax(1).cpu().numpy())
        self.log("val_f1_whole", f1)  # !XLA427
        mean = self.trainer.strategy.reduce(torch.stack([x["loss"] for x in self.kept]).mean())
        self.log("val_reduced", mean)
        self.log("epoch", float(self.current_epoch))
        self.kept.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters())
        plateau = ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val_loss"}


L.Trainer(accelerator="tpu", devices=8, max_epochs=3).fit(Net())
"""


def test_logs_in_helpers_and_at_the_end_of_an_evaluation():
    codes = {"XLA419", "XLA427", "XLA903"}
    told = {(row, code) for row, code in found(LOGS) if code in codes}
    assert told == marks(LOGS)


DATA = """
import lightning as L
import pandas as pd
from torch.utils.data import DataLoader, random_split


class Rows(L.LightningDataModule):
    def __init__(self, path):
        super().__init__()
        print("rows of", path)
        self.path = path

    def prepare_data(self):
        pd.read_json(self.path).to_csv("rows.csv")

    def setup(self, stage=None):
        frame = pd.read_csv("rows.csv")
        print("rows", len(frame))  # !XLA401
        self.write(frame)
        self.train, self.val = random_split(frame, [0.8, 0.2])

    def write(self, frame):
        frame.to_csv("clean.csv")  # !XLA406

    def describe(self):
        print("for whoever asks")

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, drop_last=True)


class Net(L.LightningModule):
    def training_step(self, batch, number):
        return self.net(batch).mean()


L.Trainer(accelerator="tpu", devices=8).fit(Net(), Rows("rows.json"))
"""


def test_data_modules_are_set_up_on_each_core():
    told = {(row, code) for row, code in found(DATA) if code in {"XLA401", "XLA406"}}
    assert told == marks(DATA)


STAGES = """
import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def shared(self, batch, stage="train"):
        loss = self.net(batch["x"]).mean()
        if stage == "train":
            self.log("train_loss", loss, prog_bar=True)  # !XLA903
            self.log_dict({"loss": loss}, on_step=True)
        elif stage in ("val", "test"):
            self.log("val_loss", loss, on_step=True)  # !XLA903 !XLA427
        else:
            self.log("other", loss)
        if self.training:
            self.log("now", loss, on_step=True)
        if not self.training:
            self.log("rest", loss, prog_bar=True)  # !XLA427
        return loss

    def training_step(self, batch, number):
        return self.shared(batch)

    def validation_step(self, batch, number):
        self.shared(batch, stage="val")


L.Trainer(accelerator="tpu", devices=8).fit(Net())
"""


def test_what_is_logged_for_one_stage_is_told_for_that_stage():
    told = {(row, code) for row, code in found(STAGES) if code in {"XLA427", "XLA903"}}
    assert told == marks(STAGES)


SETTINGS = """
from dataclasses import dataclass, field
from pathlib import Path

import lightning as L
import numpy as np
import torch


@dataclass
class Machine:
    accelerator: str = "{accelerator}"
    devices: int = {devices}


@dataclass
class Config:
    machine: Machine = field(default_factory=Machine)
    path: str = "out"


class Show(L.Callback):
    def __init__(self, path, stamp):
        self.path = Path(path)
        self.best = "best.pt"
        self.stamp = stamp()
        self.number = 0

    def on_train_epoch_end(self, trainer, pl_module):
        torch.save(pl_module.state_dict(), self.best)  # !XLA406
        np.save(self.path / "weights.npy", np.zeros(3))  # !XLA406
        np.save(f"weights_{{pl_module.current_epoch}}.npy", np.zeros(3))  # !XLA406
        np.save(f"weights_{{self.stamp}}.npy", np.zeros(3))
        np.save(f"weights_{{trainer.global_rank}}.npy", np.zeros(3))


class Net(L.LightningModule):
    def training_step(self, batch, number):
        return self.net(batch).mean()


def main(cfg: Config, stamp):
    machine = {machine}
    net, shows = Net(), [Show("out", stamp)]
    L.Trainer(
        accelerator=machine.accelerator, devices=machine.devices, callbacks=shows,
        detect_anomaly=True,  # !XLA106
    ).fit(net)
"""


@pytest.mark.parametrize("machine", ["Machine()", "cfg.machine", "load(cfg)"])
def test_cores_and_paths_of_settings(machine):
    program = SETTINGS.format(accelerator="tpu", devices=8, machine=machine)
    told = {(row, code) for row, code in found(program) if code in {"XLA106", "XLA406"}}
    assert told == marks(program)


@pytest.mark.parametrize(("accelerator", "devices"), [("gpu", 8), ("tpu", 1)])
def test_settings_of_one_core_or_other_devices(accelerator, devices):
    program = SETTINGS.format(accelerator=accelerator, devices=devices, machine="load(cfg)")
    assert "XLA406" not in {code for _, code in found(program)}


FABRIC = """
import json

import lightning as L
import torch
from lightning.fabric.strategies import XLAStrategy


def note(numbers):
    with open("numbers.json", "w") as file:  # !XLA406
        json.dump(numbers, file)


def evaluate(fabric, net):
    print("evaluation")  # !XLA401
    if fabric.is_global_zero:
        print("by one core")
    note({{}})


def run(fabric):
    net = fabric.setup(torch.nn.Linear(3, 3))
    evaluate(fabric, net)
    torch.save(net.state_dict(), "net.pt")  # !XLA406
    fabric.print("done")


def report():
    print("nobody launches this")


def main(devices={devices}):
    fabric = L.Fabric(accelerator="{accelerator}", devices=devices, strategy=XLAStrategy())
    fabric.launch(run)
    print("done")
    report()
"""


def test_what_fabric_launches_runs_on_each_core():
    program = FABRIC.format(devices=8, accelerator="tpu")
    told = {(row, code) for row, code in found(program) if code in {"XLA401", "XLA406"}}
    assert told == marks(program)
    alone = FABRIC.format(devices=1, accelerator="tpu")
    assert not {code for _, code in found(alone)} & {"XLA401", "XLA406"}
