"""Projects of several files, in which an object, a class or a module is handed from one to another.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

DEVICES = """\
import torch

try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


def xla_model():
    return xm


def current_device():
    global _device
    try:
        return _device
    except NameError:
        if xm is not None:
            _device = xm.xla_device()
        elif torch.cuda.is_available():
            _device = torch.device("cuda:0")
        else:
            _device = torch.device("cpu")
    return _device
"""
NETS = """\
import torch
import torch.nn as nn


class Head(nn.Module):
    def forward(self, features, targets):
        counts = (features.sum(dim=2) > 0).sum(dim=1)
        for row in range(features.shape[0]):
            if int(counts[row]) == 0:{counted}
                continue
        return features[features > 0].sum(){masked}


class Detector(nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images, targets=None):
        return {{"loss": self.head(self.backbone(images), targets)}}
"""
PLAN = """\
import torch.nn as nn


class Base:
    def get_model(self):
        raise NotImplementedError


class Plan(Base):
    def get_model(self):
        from nets import Detector, Head

        if getattr(self, "model", None) is None:
            self.model = Detector(nn.Linear(4, 4), Head())
        return self.model
"""
TRAINER = """\
from devices import current_device, xla_model
from plan import Base, Plan

xm = xla_model()


class Trainer:
    def __init__(self, plan: {said}, loader):
        self.plan = plan
        self.device = current_device()
        self.loader = iter(loader)

    def train(self):
        self.model = self.plan.get_model().to(self.device)
        for self.turn in range(100):
            self.step()

    def step(self):
        images, targets = next(self.loader)
        images = images.to(self.device)
        loss = self.model(images, targets.to(self.device))["loss"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        print(loss.item())  # !XLA101
        if xm:
            xm.mark_step()  # !XLA802
"""


@pytest.mark.parametrize("said", ["Plan", "Base", "object"])
def test_what_a_parameter_is_said_to_be_makes_the_model(tmp_path, said):
    """A class of the program, or one of its heirs; not what anything may be."""
    known = said != "object"
    nets = NETS.format(
        counted="  # !XLA102" if known else "", masked="  # !XLA202" if known else ""
    )
    files = {
        "devices.py": DEVICES.replace("xla_device()", "xla_device()  # !XLA802"),
        "nets.py": nets,
        "plan.py": PLAN,
        "trainer.py": TRAINER.format(said=said),
    }
    asked = {"XLA101", "XLA102", "XLA202", "XLA802"}
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)


CORES = "import torch_xla.core.xla_model as xm\n"
PROGRAMS = {
    "XLA802: a name that only looks like a module of torch_xla": f"""\
{CORES}
def xla_loaders(make):
    xr = make()
    xs = make()
    return xr.total, xs.shape
""",
    "XLA408: notebook_launcher hands over what it is given, and no number": f"""\
{CORES}
from accelerate import notebook_launcher
def main(text, model, size=None):
    return text, model, size
def alone():
    return None
notebook_launcher(main, ("a",), num_processes=8)  # !XLA408
notebook_launcher(main, ("a", "b"), num_processes=8)
notebook_launcher(main, args=("a", "b", "c", "d"), num_processes=8)  # !XLA408
notebook_launcher(alone, num_processes=8)
""",
    "XLA406 XLA905: callbacks that are given as classes": f"""\
{CORES}
import json
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import Trainer, TrainerCallback, TrainingArguments
class Logger(TrainerCallback):
    def on_train_end(self, args, state, control, **kwargs):
        try:
            with open("log.json", "w") as out:  # !XLA406
                json.dump([args.logging_dir], out)
        except Exception:
            pass
        finally:
            print(args.logging_dir)  # !XLA905
class Other(TrainerCallback):
    def on_train_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            with open("log.json", "w") as out:
                json.dump([], out)
def main(index):
    arguments = TrainingArguments("out", optim="adamw_torch", dataloader_drop_last=True)
    Trainer(net, args=arguments, callbacks=[Logger, Other]).train()
if __name__ == "__main__":
    xmp.spawn(main)
""",
    "XLA901 XLA718: what stands where the program found GPUs": """\
import pytorch_lightning as pl
from torch.utils.data import DataLoader
def train(config, net, dataset):
    settings = {"max_epochs": 3}
    if config.device.startswith("gpu"):
        from pytorch_lightning.plugins import DDPPlugin
        settings["plugins"] = DDPPlugin(find_unused_parameters=False)
    elif config.device == "tpu":
        from pytorch_lightning.plugins import DDPSpawnPlugin  # !XLA901
        settings["accelerator"] = "tpu"
        settings["devices"] = 8
    loader = DataLoader(dataset, 8, pin_memory=True, drop_last=True)
    pl.Trainer(**settings).fit(net, loader)
""",
    "XLA718: a Trainer for TPUs alone": """\
import pytorch_lightning as pl
from torch.utils.data import DataLoader
def train(net, dataset):
    settings = {"accelerator": "tpu", "devices": 8}
    loader = DataLoader(dataset, 8, pin_memory=True, drop_last=True)  # !XLA718
    pl.Trainer(**settings).fit(net, loader)
""",
    "XLA901: a precision for TPUs": """\
import pytorch_lightning as pl
def train(net, loader, use_tpus):
    precision = 16 if use_tpus else 32  # !XLA901
    other = 32 if use_tpus else 16
    if use_tpus:
        pl.Trainer(accelerator="tpu", devices=8, precision=precision).fit(net, loader)
        pl.Trainer(accelerator="tpu", devices=8, precision=other).fit(net, loader)
""",
    "XLA101: a step that the Trainer of another file calls": f"""\
{CORES}
from engine.trainer import Trainer
class OnTpus(Trainer):
    def _backward_pass(self, model, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        xm.mark_step()
        return loss.detach().cpu().numpy()  # !XLA101
class Check:
    def once(self, model, batch):
        loss = model(batch.to(xm.xla_device())).sum()
        loss.backward()
        self.optimizer.step()
        return loss.item()
""",
    "XLA314: Trainers that compile": f"""\
{CORES}
from transformers import Trainer, TrainingArguments
def train(net, sharded):
    if sharded:
        more = {{"torch_compile": False, "torch_compile_backend": None}}
    else:
        more = {{"torch_compile": True, "torch_compile_backend": "inductor"}}  # !XLA314
    Trainer(net, args=TrainingArguments("out", torch_compile=True)).train()  # !XLA314
    openxla = TrainingArguments("out", torch_compile=True, torch_compile_backend="openxla")
    Trainer(net, args=openxla).train()
    Trainer(net, args=TrainingArguments("out", torch_compile=False)).train()
    Trainer(net, args=TrainingArguments("out", **more)).train()
""",
    "XLA102 XLA603: batches that an object moves in their place": f"""\
{CORES}
import torch
class Prefetcher:
    def __init__(self, loader, device):
        self.batches, self.device = iter(loader), device
        self.preload()
    def preload(self):
        try:
            self.images, self.labels = next(self.batches)
        except StopIteration:
            self.images = self.labels = None
            return
        if torch.cuda.is_available():
            self.images = self.images.cuda(non_blocking=True)
        else:
            self.images = self.images.to(device=self.device)  # !XLA603
    def next(self):
        images, labels = self.images, self.labels
        self.preload()
        return images, labels
class Loop:
    def __init__(self, net, dataset):
        self.device = xm.xla_device()
        self.net = net.to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.feed = Prefetcher(torch.utils.data.DataLoader(dataset), self.device)
    def run(self):
        for self.turn in range(100):
            self.step()
    def step(self):
        images, labels = self.feed.next()
        most = int(images[0])  # !XLA102
        least = int(labels[0])
        loss = self.net(images).sum() * most * least
        self.optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(self.optimizer, barrier=True)
""",
    "XLA101: what a mode for the CPU does": f"""\
{CORES}
def assign(loader, net, optimizer, mode="gpu", stage="train"):
    device = xm.xla_device()
    for batch in loader:
        loss = net(batch.to(device))
        if mode == "cpu":
            kept = loss.cpu()
        if stage == "train":
            shown = loss.cpu()  # !XLA101
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
""",
    "XLA801: metrics of before 2.3": """\
import torch_xla.debug.metrics as met
def waited():
    return met.metric_data("TransferFromServerTime")[0], met.metric_data("CompileTime")  # !XLA801
""",
    "XLA801: metrics of before and after 2.3": """\
import torch_xla.debug.metrics as met
def waited():
    data = met.metric_data("TransferFromDeviceTime") or met.metric_data("TransferFromServerTime")
    return data[0]
""",
    "XLA434: draws in the steps of Lightning": """\
import lightning.pytorch as pl
import torch
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def training_step(self, batch, number):
        noise = torch.randn_like(batch)  # !XLA434
        mask = torch.zeros_like(batch).float().uniform_(0, 1) < 0.5  # !XLA434
        return self.layer(batch + noise * mask).sum()
    def validation_step(self, batch, number):
        return self.layer(batch + torch.randn_like(batch)).sum()
pl.Trainer(accelerator="tpu", devices=8).fit(Net(), loader)
""",
    "XLA434: draws of one core": """\
import lightning.pytorch as pl
import torch
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def training_step(self, batch, number):
        return self.layer(batch + torch.randn_like(batch)).sum()
pl.Trainer(accelerator="tpu", devices=1).fit(Net(), loader)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_handed_on_is_known(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


STARTED = """\
import torch.distributed as dist
from data import loader


def launch(main, rank, world):
    dist.init_process_group("xla", rank=rank, world_size=world)
    main(loader(None))
"""
SAMPLED = """\
import torch
import torch_xla.core.xla_model as xm


def loader(dataset):
    sampler = torch.utils.data.distributed.DistributedSampler(dataset){mark}
    return torch.utils.data.DataLoader(dataset, sampler=sampler, drop_last=True)
"""


@pytest.mark.parametrize("started", [True, False])
def test_what_another_file_initializes_is_there(tmp_path, started):
    files = {"data.py": SAMPLED.format(mark="" if started else "  # !XLA409")}
    if started:
        files["launch.py"] = STARTED
    assert told_in_files(tmp_path, files, {"XLA409"}) == marks_in_files(files)
