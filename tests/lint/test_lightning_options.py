"""Lightning programs whose devices stand in an option, a dictionary or a strategy.

All programs are invented. ``# !XLA901`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, found_in_files, marks

MODULE = """
import torch
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def training_step(self, batch, index):
        error = self.layer(batch).sum()
        self.log("error", error, sync_dist=True)
        return error
    def validation_step(self, batch, index):
        print(float(self.layer(batch).sum()))
    def validation_epoch_end(self, outputs):
        pass
"""
SCRIPT = """
import argparse
import lightning.pytorch as pl
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument({option})
parser.add_argument("--devices", type=int, required=True)
args = parser.parse_args()
pl.Trainer(accelerator=args.{name}, devices=args.devices).fit(Net())
"""
FOR_TPUS = {
    '"--accelerator", type=str, required=True, help="one of: cpu, gpu, tpu"': "accelerator",
    '"-a", "--accelerator", help="GPU or TPU"': "accelerator",
    '"--hardware", required=True, help="what to train on (gpu, TPUs)"': "hardware",
    '"--accelerator", required=True, choices=["gpu", "tpu"]': "accelerator",
}
FOR_OTHERS = {
    '"--accelerator", default="gpu", help="one of: cpu, gpu, tpu"': "accelerator",
    '"--accelerator", required=True, help="cpu or gpu; the output is the same"': "accelerator",
    '"--name", required=True, help="what the logger calls it (tpu-1)"': "name",
}


@pytest.mark.parametrize("option", FOR_TPUS)
def test_an_option_that_takes_tpus_makes_a_program_for_them(option, tmp_path):
    script = SCRIPT.format(option=option, name=FOR_TPUS[option])
    told = found_in_files(tmp_path, {"net.py": MODULE, "main.py": script})["net.py"]
    assert {"XLA102", "XLA423", "XLA910"} <= {code for _, code in told}


@pytest.mark.parametrize("option", FOR_OTHERS)
def test_an_option_with_another_default_makes_none(option, tmp_path):
    script = SCRIPT.format(option=option, name=FOR_OTHERS[option])
    assert not any(found_in_files(tmp_path, {"net.py": MODULE, "main.py": script}).values())


LOGGED = """
import torch
import torchmetrics
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.hits = torchmetrics.Accuracy(task="multiclass", num_classes=8)
    def training_step(self, batch, index):
        x, y = batch
        out = self.layer(x)
        error = torch.nn.functional.cross_entropy(out, y)
        self.hits(out, y)
        self.log("error", error, sync_dist=True)  # !XLA423
        self.log_dict({{"error/again": error}}, sync_dist=True, on_step=True)  # !XLA423
        self.log("error/mean", error, sync_dist=True, on_step=False, on_epoch=True)
        self.log("error/own", error)
        self.log("hits", self.hits, sync_dist=True)
        if index % 100 == 0:
            self.log("error/rare", error, sync_dist=True)
        return error
    def validation_step(self, batch, index):
        error = self.layer(batch[0]).mean()
        self.log("val", error, sync_dist=True)
        self.log("val/each", error, sync_dist=True, on_step=True)  # !XLA423
    def on_train_epoch_end(self):
        self.log("once", self.layer.weight.mean(), sync_dist=True)
trainer = pl.Trainer(accelerator="tpu", devices={devices})
"""


@pytest.mark.parametrize("devices", ['"auto"', "8", "count"])
def test_values_that_lightning_reduces_on_each_step(devices):
    program = LOGGED.format(devices=devices)
    told = {(row, code) for row, code in found(program) if code == "XLA423"}
    assert told == marks(program)


def test_on_one_core_nothing_is_reduced():
    assert "XLA423" not in codes(LOGGED.format(devices=1))


SETTINGS = """
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.strategies import XLAStrategy
def config(cfg):
    cfg["trainer"].update({"accelerator": "tpu", "devices": 8,
                           "precision": "bf16-mixed"})  # !XLA901
    other = dict(accelerator="tpu", max_epochs=3,
                 gpus=0)  # !XLA901
    good = {"accelerator": "tpu", "devices": 8, "precision": "bf16-true"}
    gpus = {"accelerator": "gpu", "devices": 8, "precision": "bf16-mixed"}
    words = {"accelerator": "tpu", "precision of the report": 16}
    return other, good, gpus, words
"""
STRATEGY = """
import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy, XLAStrategy
first = pl.Trainer(strategy=XLAStrategy(),
                   devices=32)  # !XLA901
second = pl.Trainer(accelerator="auto", strategy=XLAStrategy(),
                    devices=6)  # !XLA901
third = pl.Trainer(strategy=XLAStrategy(), devices=8)
fourth = pl.Trainer(strategy=DDPStrategy(), devices=32)
"""


@pytest.mark.parametrize("program", [SETTINGS, STRATEGY])
def test_settings_for_a_trainer_wherever_they_are_written(program):
    told = {(row, code) for row, code in found(program) if code == "XLA901"}
    assert told == marks(program)


def test_settings_are_told_once():
    program = """
    import lightning.pytorch as pl
    settings = {"accelerator": "tpu", "devices": 8, "precision": 16}
    trainer = pl.Trainer(**settings)
    """
    assert [code for _, code in found(program)] == ["XLA901"]


NAMED = """
import torch
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def validation_step(self, batch, index):
        out = batch.mean()
        told = {"val/error": out, "val/size": 8}
        self.log_dict(told)  # !XLA427
        self.log_dict({"val/again": out})  # !XLA427
        self.log_dict({"val/size": 8})
        self.log_dict(told, sync_dist=True)
    def configure_optimizers(self):
        adam = torch.optim.Adam(self.parameters())
        plan = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)
        return {"optimizer": adam, "lr_scheduler": {"scheduler": plan, "monitor": "val/error"}}
trainer = pl.Trainer(accelerator="tpu", devices=8)
"""


def test_values_of_one_core_in_a_dictionary():
    told = {(row, code) for row, code in found(NAMED) if code == "XLA427"}
    assert told == marks(NAMED)
    plateau = [row for row, code in found(NAMED) if code == "XLA419"]
    assert plateau == [min(row for row, _ in marks(NAMED))]


#: What the Trainer's own options count is any number, until the program says which.
BROUGHT = """
import argparse
import torch
import pytorch_lightning as pl
class Painter(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
    def draw(self, count):
        return self.net(torch.randn(count, 8, device=self.device))  {mark}
    def training_step(self, batch, index):
        return (self.draw(len(batch)) - batch).square().mean()
parser = argparse.ArgumentParser()
parser = pl.Trainer.add_argparse_args(parser)
{more}
args = parser.parse_args()
trainer = pl.Trainer(tpu_cores=args.tpu_cores, devices=args.devices)
trainer.fit(Painter())
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("parser.add_argument('--rounds', type=int)", True),
        ("parser.set_defaults(devices=1)", False),
        ("parser.add_argument('--devices', default=1)", False),
    ],
)
def test_options_that_the_trainer_brings(more, told):
    program = BROUGHT.format(more=more, mark="# !XLA434" if told else "")
    assert {one for one in found(program) if one[1] == "XLA434"} == marks(program)


CHOSEN = """\
import lightning.pytorch as pl
from net import Net
def main(args):
    if args.hardware == "tpu":
        accelerator = "tpu"
        cores = {cores}  {first}
        spread = {spread}  {second}
    else:
        accelerator, cores, spread = "cpu", 1, "auto"
    pl.Trainer(accelerator=accelerator, devices=cores, strategy=spread).fit(Net())
"""


@pytest.mark.parametrize(
    ("cores", "wrong"),
    [('"xla:1"', True), ('"tpu:4"', True), ('"8"', False), ("4", False), ('"auto"', False)],
)
@pytest.mark.parametrize(("spread", "gone"), [('"tpu_spawn"', True), ('"xla"', False)])
def test_what_one_of_two_branches_gives_the_trainer(cores, wrong, spread, gone):
    marked = {"first": "# !XLA901" * wrong, "second": "# !XLA901" * gone}
    program = CHOSEN.format(cores=cores, spread=spread, **marked)
    assert {one for one in found(program) if one[1] in {"XLA901", "XLA416"}} == marks(program)


KEPT = """\
import lightning.pytorch as pl
class Settings:
    def hardware(self):
        if self.args.kind == "tpu":
            return {
                "accelerator": "tpu",
                "devices": "xla:8",  # !XLA901
                "strategy": "tpu_spawn",  # !XLA901
            }
        return {"accelerator": "gpu", "devices": 1, "strategy": "auto"}
"""
NO_CORES = """\
import lightning.pytorch as pl
def main(args, net):
    cores = {cores}
    pl.Trainer(tpu_cores=cores, gpus=args.gpus).fit(net)  {mark}
"""


def test_texts_for_devices_in_a_dictionary_for_a_trainer():
    assert {one for one in found(KEPT) if one[1] == "XLA901"} == marks(KEPT)


@pytest.mark.parametrize(
    ("cores", "asked"), [("None", False), ("8 if args.tpu else None", True), ("args.cores", True)]
)
def test_a_trainer_that_is_given_no_tpu_cores(cores, asked):
    program = NO_CORES.format(cores=cores, mark="# !XLA901" * asked)
    assert {one for one in found(program) if one[1] == "XLA901"} == marks(program)
