"""What objects of a program hold and hand on: registries, meters, trackers, callbacks, generators.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

XM = """\
import random
import numpy as np
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset
"""
TABLE = """\
class Shelf(dict):
    def add(self, name):
        def keep(thing):
            self[name] = thing
            return thing
        return keep
    def make(self, settings, **more):
        settings = dict(settings)
        return self[settings.pop("kind")](**settings, **more)
NETS, WATCHERS = Shelf(), Shelf()
"""
LISTED = """\
class Shelf:
    def __init__(self):
        self.things = {}
    def __setitem__(self, name, thing):
        self.things[name] = thing
    def __getitem__(self, name):
        return self.things[name]
NETS, WATCHERS = Shelf(), Shelf()
"""
WATCHER = """\
class Speaker:
    def after_step(self, run):
        print(run.last.item())  # !XLA101
    def after_fit(self, run):
        print(run.last.item())
"""
FITS = """\
class Run:
    def __init__(self, settings, batches):
        self.device = torch_xla.device()
        self.net = torch.nn.Linear(3, 3).to(self.device)
        self.adam = torch.optim.Adam(self.net.parameters())
        self.batches = pl.MpDeviceLoader(batches, self.device)
        self.watchers = MADE
    def tell(self, what):
        for one in self.watchers:
            getattr(one, what)(self)
    def fit(self):
        for x in self.batches:
            loss = self.net(x).mean()
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
            self.last = loss.detach()
            self.tell("after_step")
        self.tell("after_fit")
"""
NET = """\
@NETS.add("wide")
class Wide(torch.nn.Module):
    def forward(self, x):
        return x
"""
STEPS = f"""\
{XM}
SUMS
def fit(net, adam, batches, device):
    kept = Kept()
    for x in pl.MpDeviceLoader(batches, device):
        loss = net(x.float()).mean()
        adam.zero_grad()
        loss.backward()
        xm.optimizer_step(adam)
"""
METER = """\
class Kept:
    def __init__(self):
        self.sum = self.last = 0
    def update(self, value, n=1):
        self.last = value
        self.sum += value * n
"""
CUTS = f"""\
{XM}
class Cutter:
    def __init__(self):
        self.dice = random.Random(3)
        self.rng = np.random.default_rng(3)
        self.beta = torch.distributions.Beta(0.5, 0.5)
    def __call__(self, x):
BODY
def fit(net, adam, batches, device):
    cut = Cutter()
    for x in pl.MpDeviceLoader(batches, device):
        loss = net(cut(x)).mean()
        adam.zero_grad()
        loss.backward()
        xm.optimizer_step(adam)
"""
EPOCHS = f"""\
{XM}
from sklearn.metrics import roc_auc_score
def scored(net, batches):
    truth, scores = [], []
    for x, y in batches:
        scores.GROWS
        truth.extend(y.tolist())
    return roc_auc_score(truth, scores)
def main(index, files):
    torch.manual_seed(1)
    device = torch_xla.device()
    net = torch.nn.Linear(3, 1).to(device)
    adam = torch.optim.Adam(net.parameters())
    sampler = torch.utils.data.DistributedSampler(files, xm.xrt_world_size(), index)
    batches = pl.MpDeviceLoader(DataLoader(files, 8, sampler=sampler, drop_last=True), device)
    best = 0
    for epoch in range(9):
        sampler.set_epoch(epoch)
        for x, y in batches:
            adam.zero_grad()
            net(x).mean().backward()
            xm.optimizer_step(adam)
        score = scored(net, batches)
"""
STARTS = 'if __name__ == "__main__":\n    torch_xla.launch(main, args=("files",))\n'

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101: a registry that is a dictionary": (
        f"{XM}{TABLE}@WATCHERS.add('speaker')\n{WATCHER}{NET}"
        + FITS.replace("MADE", "[WATCHERS.make(one) for one in settings]")
    ),
    "XLA101: a registry with places of its own": (
        f"{XM}{LISTED}{WATCHER}WATCHERS['speaker'] = Speaker\n"
        + FITS.replace("MADE", "[WATCHERS[name]() for name in settings]")
    ),
    "XLA101: a registry that is asked with get": (
        f"{XM}{TABLE}{WATCHER}WATCHERS['speaker'] = Speaker\n"
        + FITS.replace("MADE", "[WATCHERS.get(name)() for name in settings]")
    ),
    "XLA101: a registry of something else": (
        f"{XM}{TABLE}@NETS.add('speaker')\n{WATCHER.replace('  # !XLA101', '')}"
        + FITS.replace("MADE", "[WATCHERS.make(one) for one in settings]")
    ),
    "XLA315: a meter of the program": STEPS.replace("SUMS", METER)
    + "        kept.update(loss, x.size(0))  # !XLA315\n",
    "XLA315: a list of the object": STEPS.replace(
        "SUMS", METER.replace("self.sum += value * n", "self.sum.append(value)")
    )
    + "        kept.update(loss)  # !XLA315\n",
    "XLA315: a meter is given no history": STEPS.replace("SUMS", METER)
    + "        kept.update(loss.detach())\n        kept.update(loss.item())\n",
    "XLA315: a meter without history": STEPS.replace(
        "SUMS", METER.replace("    def update", "    @torch.no_grad()\n    def update")
    )
    + "        kept.update(loss)\n",
    "XLA315: a meter that cuts it": STEPS.replace(
        "SUMS",
        METER.replace("        self.last", "        value = value.detach()\n        self.last"),
    )
    + "        kept.update(loss)\n",
    "XLA315: a meter that keeps the last": STEPS.replace(
        "SUMS", METER.replace("        self.sum += value * n\n", "")
    )
    + "        kept.update(loss)\n",
    "XLA208: a generator of Python's": CUTS.replace(
        "BODY", "        n = self.dice.randint(1, 9)\n        return x[:, :n]  # !XLA208"
    ),
    "XLA208: a generator of NumPy's": CUTS.replace(
        "BODY", "        n = int(self.rng.integers(1, 9))\n        return x[:, :n]  # !XLA208"
    ),
    "XLA208: a distribution": CUTS.replace(
        "BODY",
        "        share = self.beta.sample().item()\n"
        "        n = int(x.size(1) * share)\n        return x[:, :n]  # !XLA208",
    ),
    "XLA208: a distribution, as a float": CUTS.replace(
        "BODY",
        "        n = int(float(torch.distributions.Beta(1.0, 1.0).sample()) * 9)\n"
        "        return x[:, :n]  # !XLA208",
    ),
    "XLA208: a factor is no place": CUTS.replace(
        "BODY", "        return x * torch.full_like(x, 2.0)"
    ),
    "XLA405: a score of lists that each core filled": EPOCHS.replace(
        "GROWS", "extend(net(x).cpu().tolist())"
    )
    + "        if score > best:\n            best = score\n"
    f"            xm.save(net.state_dict(), 'best.pt')  # !XLA405\n{STARTS}",
    "XLA405: a score that the cores agree on": EPOCHS.replace(
        "GROWS", "extend(net(x).cpu().tolist())"
    )
    + "        score = xm.mesh_reduce('score', score, max)\n        if score > best:\n"
    f"            best = score\n            xm.save(net.state_dict(), 'best.pt')\n{STARTS}",
    "XLA405: a Trainer of the program's own": """\
from transformers import Trainer, TrainingArguments
import torch_xla
class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return model(**inputs).loss
def main(index):
    trainer = Mine(model=net, args=TrainingArguments("out"))
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model("out")  # !XLA405
    trainer.save_model("out")
torch_xla.launch(main)
""",
    "XLA405: a method of the program's own": """\
from transformers import Trainer, TrainingArguments
import torch_xla
class Mine(Trainer):
    def save_model(self, path):
        print(path)
def main(index):
    trainer = Mine(model=net, args=TrainingArguments("out"))
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model("out")
torch_xla.launch(main)
""",
    "XLA104 XLA101: callbacks of Lightning": """\
import torch
import lightning.pytorch as L
from lightning.pytorch.callbacks import Callback
class Watch(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if torch.isnan(outputs["loss"]):  # !XLA104
            trainer.should_stop = True
        if index % 50 == 0:
            print(index)
    def on_train_epoch_end(self, trainer, module):
        print(trainer.callback_metrics["loss"].item())
class Module(L.LightningModule):
    def training_step(self, batch, index):
        return self.net(batch[0]).mean()
L.Trainer(accelerator="tpu", devices=8, callbacks=[Watch()]).fit(Module())
""",
    "XLA104 XLA101: callbacks of the Trainer": """\
import torch
import torch_xla
from transformers import Trainer, TrainerCallback
class Watch(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **rest):
        size = model.head.weight.norm().item()  # !XLA101
        if model(self.probe).logits.std() < 1e-3:  # !XLA104
            control.should_training_stop = True
        if state.global_step > 10:
            control.should_save = True
    def on_epoch_end(self, args, state, control, model=None, **rest):
        print(model.head.weight.norm().item())
def main(index):
    Trainer(model=net, args=settings, callbacks=[Watch()]).train()
torch_xla.launch(main)
""",
    "XLA605: samples of a tensor on the device": f"""\
{XM}
device = torch_xla.device()
class Rows(Dataset):
    def __init__(self, rows, labels):
        self.rows = torch.tensor(rows)
        self.labels = torch.tensor(labels).to(device)  # !XLA605
        self.weights = torch.ones(3, device=device)
    def __getitem__(self, index):
        return self.rows[index], self.labels[index]
""",
    "XLA605: an object that is no dataset": f"""\
{XM}
device = torch_xla.device()
class Rows:
    def __init__(self, labels):
        self.labels = torch.tensor(labels).to(device)
    def __getitem__(self, index):
        return self.labels[index]
""",
    "XLA209: the collator of a Trainer": f"""\
{XM}
from transformers import Trainer
class Together:
    def __call__(self, rows):
        longest = max(len(row["ids"]) for row in rows)  # !XLA209
        out = torch.full((len(rows), longest), -100)
        for i, row in enumerate(rows):
            out[i, : len(row["ids"])] = torch.tensor(row["ids"])
        return {{"ids": out}}
def main(index):
    Trainer(model=net, args=settings, data_collator=Together()).train()
torch_xla.launch(main)
""",
    "XLA209: a collator of one length": f"""\
{XM}
from transformers import Trainer
class Together:
    def __call__(self, rows):
        out = torch.full((len(rows), 128), -100)
        for i, row in enumerate(rows):
            out[i, : len(row["ids"])] = torch.tensor(row["ids"])
        return {{"ids": out}}
def main(index):
    Trainer(model=net, args=settings, data_collator=Together()).train()
torch_xla.launch(main)
""",
    "XLA708: the backend in a setting": f"""\
{XM}
def main(index, settings):
    settings.backend = "nccl"
    dist.init_process_group(settings.backend)  # !XLA708
    print(torch_xla.device())
torch_xla.launch(main, args=(settings,))
""",
    "XLA708: an option whose default it is": f"""\
{XM}
import argparse
def main(index, options):
    dist.init_process_group(backend=options.backend)  # !XLA708
    print(torch_xla.device())
parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
torch_xla.launch(main, args=(parser.parse_args(),))
""",
    "XLA708: a setting that is set to another too": f"""\
{XM}
import argparse
def main(index, options):
    if options.tpu:
        options.backend = "xla"
    dist.init_process_group(backend=options.backend)
    print(torch_xla.device())
parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
torch_xla.launch(main, args=(parser.parse_args(),))
""",
    "XLA721: a state that the program puts together": f"""\
{XM}
import copy
class Slow:
    def __init__(self, net):
        self.net = copy.deepcopy(net)
    def state_dict(self):
        return {{"net": self.net.state_dict(), "steps": 3}}
def main():
    net = torch.nn.Linear(3, 3).to(torch_xla.device())
    slow = Slow(net)
    torch.save(slow.state_dict(), "slow.pt")  # !XLA721
""",
    "XLA721: a state of numbers": f"""\
{XM}
class Slow:
    def __init__(self):
        self.steps = 3
    def state_dict(self):
        return {{"steps": self.steps}}
def main():
    net = torch.nn.Linear(3, 3).to(torch_xla.device())
    torch.save(Slow().state_dict(), "slow.pt")
""",
}

#: Programs of several files.
FILES = {
    "XLA101: watchers of another file": {
        "shelf.py": TABLE,
        "watchers.py": f"from shelf import WATCHERS\n@WATCHERS.add('speaker')\n{WATCHER}",
        "train.py": f"{XM}import watchers\nfrom shelf import WATCHERS\n"
        + FITS.replace("MADE", "[WATCHERS.make(one) for one in settings]"),
    },
    "XLA420: the step in another file": {
        "engine.py": f"""\
{XM}
def fit(net, adam, batches):
    for x in batches:
        adam.zero_grad()
        net(x).mean().backward()
        xm.optimizer_step(adam)
""",
        "train.py": f"""\
{XM}
import engine
def main(index, batches):
    device = torch_xla.device()
    first = xm.is_master_ordinal()
    torch.manual_seed(1)
    net = torch.nn.Linear(3, 3).to(device)
    adam = torch.optim.Adam(net.parameters())
    batches = pl.MpDeviceLoader(batches, device)
    for epoch in range(9):
        engine.fit(net, adam, batches)
        if first and epoch > 3:
            break  # !XLA420
        if epoch > 7:
            break
torch_xla.launch(main, args=("batches",))
""",
    },
    "XLA704: a scaler of another file": {
        "scaling.py": """\
import torch
import torch_xla.core.xla_model as xm
class Scaler:
    def __init__(self):
        self.scaler = torch.cuda.amp.GradScaler()  # !XLA704
    def __call__(self, loss, adam):
        self.scaler.scale(loss).backward()
        xm.optimizer_step(adam)
""",
        "train.py": f"""\
{XM}
from scaling import Scaler
def main(index, batches):
    device = torch_xla.device()
    scaler = Scaler()
    net = torch.nn.Linear(3, 3).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        scaler(net(x).mean(), adam)
torch_xla.launch(main, args=("batches",))
""",
    },
}


@pytest.mark.parametrize("case", PROGRAMS, ids=str)
def test_what_objects_hold_is_followed(case):
    """Each spelling is told at the marked lines, and its healthy twin is left alone."""
    asked = set(case.partition(":")[0].split())
    told = {(row, code) for row, code in found(PROGRAMS[case]) if code in asked}
    assert told == {(row, code) for row, code in marks(PROGRAMS[case]) if code in asked}


@pytest.mark.parametrize("case", FILES, ids=str)
def test_what_objects_of_other_files_hold_is_followed(case, tmp_path):
    """The same where a program stands in several files."""
    asked, files = set(case.partition(":")[0].split()), FILES[case]
    assert told_in_files(tmp_path, files, asked) == marks_in_files(files, asked)


def test_plain_pytorch_is_left_alone():
    """The same programs without XLA get nothing."""
    for case in ("XLA315: a meter of the program", "XLA208: a generator of Python's"):
        plain = "\n".join(
            line for line in PROGRAMS[case].splitlines() if not line.startswith("import torch_xla")
        )
        plain = plain.replace("xm.optimizer_step(adam)", "adam.step()")
        plain = plain.replace("pl.MpDeviceLoader(batches, device)", "batches")
        assert found(plain) == []
