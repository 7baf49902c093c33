"""What Lightning 2 has lost and refuses, also on one of two sides, and what a Trainer compiles.

All programs are invented. ``# !XLA910`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

PROGRAMS = {
    "XLA910: what a Trainer of Lightning 1 kept": """\
import lightning.pytorch as pl


class Net(pl.LightningModule):
    def on_train_end(self):
        for optimizer in self.trainer.lightning_optimizers:  # !XLA910
            print(optimizer, self.trainer.batch_idx, self.trainer.rows)  # !XLA910


class Shown(pl.Callback):
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule):
        self.speed = Speed(trainer.logger)
        self.asked = trainer

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.speed.on_train_batch_end(batch)
        print(self.asked.total_batch_idx)  # !XLA910


def main(settings):
    trainer = pl.Trainer(accelerator="tpu", devices=8, **settings)
    trainer.benchmark = True
    if trainer.auto_lr_find:  # !XLA910
        print(trainer.benchmark, trainer.global_step)
    trainer.fit(Net())
""",
    "XLA910 XLA901: a Trainer and a module of files that are not there": """\
import lightning.pytorch as pl
from common.nets import BaseNet


class Tagger(BaseNet):
    def training_step(self, batch, index, optimizer_idx):  # !XLA910
        self.log("loss", self.loss(batch), tbptt_reduce_fx=max)  # !XLA901
        return self.loss(batch)

    def validation_epoch_end(self, outputs):  # !XLA910
        return None


def shown(trainer, config, loader):
    trainer.logger_connector.log_metrics({}, {})  # !XLA910
    print(trainer.tested_ckpt_path)  # !XLA910
    trainer.fit(Tagger(), train_dataloader=loader)  # !XLA901
    return config.trainer.root_gpu


def main(loader):
    pl.Trainer(accelerator="tpu", devices=8).fit(Tagger(), loader)
""",
    "XLA106: settings of a Trainer in a dictionary, some on a condition": """\
import lightning.pytorch as pl


def train(net, options):
    settings = {
        "max_epochs": 3,
        "detect_anomaly": True,  # !XLA106
    }
    if options.device == "tpu":
        settings.update({"accelerator": "tpu", "devices": 8})
    pl.Trainer(**settings).fit(net)


def look(net, options):
    settings = dict(max_epochs=3, accelerator="tpu", devices=8)
    if options.debug:
        settings["detect_anomaly"] = True
    pl.Trainer(**settings).fit(net)
""",
    "XLA203: a helper that is asked for loaders to train and to test with": """\
import lightning.pytorch as pl
from torch.utils.data import DataLoader


class Reader(pl.LightningModule):
    def batches(self, name, size, mixed=False):
        rows = self.rows(name)
        loader = DataLoader(rows, batch_size=size, shuffle=mixed, num_workers=4)  # !XLA203
        print(name, len(rows))
        return loader

    def fixed(self, name, size, mixed=False):
        return DataLoader(self.rows(name), batch_size=size, shuffle=mixed, num_workers=4)

    def train_dataloader(self):
        return self.batches("train.json", self.hparams.size, mixed=True)

    def val_dataloader(self):
        return self.batches("test.json", self.hparams.size)

    def test_dataloader(self):
        return self.fixed("test.json", self.hparams.size)


pl.Trainer(accelerator="tpu", devices=8).fit(Reader())
""",
    "XLA305: optimizers that configure_optimizers gives and has not made": """\
import lightning.pytorch as pl
import torch


class Graph(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate)  # !XLA305


class Inner(pl.LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.net = Graph(rate)

    def training_step(self, batch, index):
        return self.net.layer(batch).mean()

    def configure_optimizers(self):
        return self.net.optimizer


class Given(pl.LightningModule):
    def __init__(self, net, optimizer):
        super().__init__()
        self.net, self.optimizer = net, optimizer

    def training_step(self, batch, index):
        return self.net(batch).mean()

    def configure_optimizers(self):
        return [self.optimizer], []


class Made(pl.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, index):
        return self.net(batch).mean()

    def _made(self):
        return torch.optim.Adam(self.net.parameters())

    def configure_optimizers(self):
        self.optimizer = self._made()
        return {"optimizer": self.optimizer}


def main():
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # !XLA305
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    for module in (Inner(0.1), Given(net, optimizer), Made(net)):
        trainer.fit(module)


if __name__ == "__main__":
    main()
""",
    "XLA403: a loader that Fabric is never given": """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from lightning.fabric import Fabric
from lightning.fabric.strategies import XLAFSDPStrategy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(fabric, rows, net):
    sampler = DistributedSampler(rows, fabric.world_size, fabric.global_rank)  # !XLA403
    loader = DataLoader(rows, batch_size=16, sampler=sampler, drop_last=True)
    net = fabric.setup(net)
    optimizer = fabric.setup_optimizers(torch.optim.SGD(net.parameters(), lr=0.1))
    batches = pl.MpDeviceLoader(loader, fabric.device)
    for epoch in range(10):
        for batch in batches:
            optimizer.zero_grad()
            fabric.backward(net(batch).mean())
            optimizer.step()


Fabric(accelerator="tpu", devices="auto", strategy=XLAFSDPStrategy()).launch(train, ROWS, NET)
""",
    "XLA403: a loader that Fabric tells the epoch": """\
import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(fabric, rows, net):
    sampler = DistributedSampler(rows, fabric.world_size, fabric.global_rank)
    loader = fabric.setup_dataloaders(DataLoader(rows, batch_size=16, sampler=sampler))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for epoch in range(10):
        for batch in loader:
            optimizer.zero_grad()
            fabric.backward(net(batch).mean())
            optimizer.step()


Fabric(accelerator="tpu", devices="auto").launch(train, ROWS, NET)
""",
    "XLA910: the number of devices, of the Trainer that the module keeps": """\
import pytorch_lightning as pl


class Tagger(pl.LightningModule):
    def __init__(self, net, trainer=None):
        super().__init__()
        self.net = net
        self._trainer = trainer

    def count(self):
        several = max(1, self._trainer.num_gpus, self._trainer.num_processes)  # !XLA910
        if self._trainer.tpu_cores:  # !XLA910
            several = 8
        return several * self._trainer.num_devices
""",
    "XLA910: an object that is asked to load": """\
import lightning.pytorch as pl
import torch


class Tagger(pl.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.net = torch.nn.Linear(width, 2)

    @classmethod
    def restored(cls, path):
        return cls.load_from_checkpoint(path)


class Own(Tagger):
    def load_from_checkpoint(self, path):
        self.load_state_dict(torch.load(path))


tagger = Tagger(16)
tagger.load_from_checkpoint("last.ckpt")  # !XLA910
tagger = Tagger.load_from_checkpoint("last.ckpt")
Own().load_from_checkpoint("last.ckpt")
pl.Trainer(accelerator="tpu").fit(tagger)
""",
    "XLA910: a Trainer of the program's own": """\
import pytorch_lightning as pl
import torch_xla


class Tagger:
    def __init__(self, trainer):
        self._trainer = trainer

    def count(self):
        return self._trainer.num_processes
""",
    "XLA910: the shape and the state of a data module": """\
import lightning.pytorch as pl


class Digits(pl.LightningDataModule):
    def setup(self, stage=None):
        if not self.has_setup_fit:  # !XLA910
            self.rows = load()

    def train_dataloader(self):
        return feed(self.rows, self.train_transforms)  # !XLA910


class Sized(pl.LightningDataModule):
    dims = (1, 28, 28)

    def __init__(self, change):
        super().__init__()
        self.train_transforms = change

    def size(self):
        return self.dims if self.train_transforms else None


class Any(pl.LightningDataModule):
    def __getattr__(self, name):
        return None


def main(net):
    data, sized = Digits(), Sized(None)
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(net(*data.size()), data)  # !XLA910
    trainer.fit(net(*sized.size()), sized)
    trainer.fit(net(*Any().size()), Any())
    trainer.fit(net(data.rows.size()), data)
""",
    "XLA901 XLA314: a strategy for GPUs on both sides of a choice": """\
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy


def main(settings, net, rows):
    net = torch.compile(net) if settings.fast else net  # !XLA314
    trainer = Trainer(
        accelerator="tpu" if settings.on_tpu else "auto",
        strategy="fsdp",  # !XLA901
    )
    trainer.fit(net, rows)


def again(settings, net, rows):
    kind = "gpu" if torch.cuda.is_available() else "tpu"
    Trainer(accelerator=kind, strategy=DDPStrategy()).fit(net, rows)  # !XLA901


def chosen(settings, net, rows):
    how = "auto" if settings.on_tpu else "ddp"
    Trainer(accelerator="tpu" if settings.on_tpu else "gpu", strategy=how).fit(net, rows)
    more = {"accelerator": "tpu" if settings.on_tpu else "gpu"}
    if not settings.on_tpu:
        more["strategy"] = "ddp"
    Trainer(**more).fit(net, rows)
    given = settings.strategy
    Trainer(accelerator="tpu" if settings.on_tpu else "gpu", strategy=given).fit(net, rows)
""",
    "XLA901 XLA314: for GPUs alone": """\
import torch
import lightning as L


def main(settings, net, rows):
    if settings.device == "tpu":
        raise SystemExit("not yet")
    net = torch.compile(net)
    L.Trainer(accelerator="gpu" if settings.gpus else "auto", strategy="fsdp").fit(net, rows)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])
