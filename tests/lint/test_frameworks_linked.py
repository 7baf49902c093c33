"""Frameworks whose loops are their own, base classes, and files that are linked.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.model.names import Names
from xladoctor.lint.model.syntax import Tree
from xladoctor.lint.run import Plan, lint_files

TRAINER = """\
from transformers import AutoConfig, AutoModelForMaskedLM, Trainer, TrainingArguments, set_seed
"""
#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA426 XLA905: a Trainer started by a launcher, whose seed comes after the weights": f"""\
{TRAINER}
def main():
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained("bert-base"))  # !XLA426
    arguments = TrainingArguments(  # !XLA905
        "out", per_device_train_batch_size=8, optim="adamw_torch"
    )
    trainer = Trainer(model=model, args=arguments)
    set_seed(arguments.seed)
    trainer.train()
def _mp_fn(index):
    main()
if __name__ == "__main__":
    main()
""",
    "XLA426: a Trainer whose seed comes first": f"""\
{TRAINER}
def main():
    set_seed(1)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained("bert-base"))
    Trainer(model, TrainingArguments("out")).train()
def _mp_fn(index):
    main()
""",
    "XLA426: a Trainer of the program's own": f"""\
{TRAINER}
class Masked(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        return model(**inputs).loss
def main():
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained("bert-base"))  # !XLA426
    Masked(model=model, args=TrainingArguments("out")).train()
def _mp_fn(rank):
    main()
""",
    "XLA426: pretrained weights are the same on all cores": f"""\
{TRAINER}
def main():
    model = AutoModelForMaskedLM.from_pretrained("bert-base-cased")
    Trainer(model, TrainingArguments("out")).train()
def _mp_fn(rank):
    main()
""",
    "XLA426: Accelerate sends nobody's weights": """\
import torch
from accelerate import Accelerator, notebook_launcher
from torch import nn
import torch_xla
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
def train(loader):
    accelerator = Accelerator()
    net = Net()  # !XLA426
    adam = torch.optim.Adam(net.parameters())
    net, adam, loader = accelerator.prepare(net, adam, loader)
    for x, y in loader:
        adam.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(net(x), y))
        adam.step()
def start(loader):
    notebook_launcher(train, (loader,))
""",
    "XLA426: Accelerate, seeded": """\
import torch
from accelerate import Accelerator, notebook_launcher
from accelerate.utils import set_seed
from torch import nn
import torch_xla
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
def train(loader):
    accelerator = Accelerator()
    set_seed(3)
    net = Net()
    adam = torch.optim.Adam(net.parameters())
    net, adam, loader = accelerator.prepare(net, adam, loader)
    for x, y in loader:
        adam.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(net(x), y))
        adam.step()
def start(loader):
    notebook_launcher(train, (loader,))
""",
    "XLA426: Lightning sends the first core's": """\
import lightning.pytorch as pl
import torch
from torch import nn
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
def _mp_fn(index, loader):
    pl.Trainer(accelerator="tpu", devices="auto").fit(Net(), loader)
""",
    "XLA101: a meter that gets what it needs through its base class": """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl
class Words:
    def text(self, labels):
        return "".join(chr(one.item()) for one in labels)  # !XLA101
class Rate:
    def __init__(self, words):
        self.words = words
        self.total = 0
    def __call__(self, targets, guesses):
        for target, guess in zip(targets, guesses):
            self.total += self.far(self.words.text(target), self.words.text(guess))
        return self.total
class Letters(Rate):
    def __init__(self, words):
        super().__init__(words)
    def far(self, one, other):
        return sum(a != b for a, b in zip(one, other))
def train(net, adam, batches, loss_of):
    device = torch_xla.device()
    rate = Letters(Words())
    for x, y in pl.MpDeviceLoader(batches, device):
        out = net(x)
        rate(y, out.argmax(-1))
        adam.zero_grad()
        loss_of(out, y).backward()
        adam.step()
""",
    "XLA101: the base class by its name": """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl
class Base:
    def __init__(self, device):
        self.device = device
    def show(self, loss):
        print(loss.item())  # !XLA101
class Loop(Base):
    def __init__(self, net, adam):
        Base.__init__(self, torch_xla.device())
        self.net, self.adam = net, adam
    def show(self, loss):
        super(Loop, self).show(loss)
    def run(self, batches):
        for x in pl.MpDeviceLoader(batches, self.device):
            loss = self.net(x).mean()
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
            self.show(loss)
""",
    "XLA901: precisions, names and settings of old releases": """\
from argparse import ArgumentParser
from pytorch_lightning import Trainer
parser = ArgumentParser()
parser.add_argument("--fp16", type=bool, default=True)
parser.add_argument("--half", type=bool, default=False)
args = parser.parse_args()
def fit(net, path):
    trainer = Trainer(
        accelerator="tpu",
        devices=8,
        precision=16 if args.fp16 else 32,  # !XLA901
        row_log_interval=10,  # !XLA901
        early_stop_callback=None,  # !XLA901
    )
    trainer.resume_from_checkpoint = path  # !XLA901
    trainer.fit(net)
    other = Trainer(accelerator="tpu", devices=8, precision=16 if args.half else 32)
    other.fit(net, ckpt_path=path)
    gpus = Trainer(accelerator="gpu", devices=8, row_log_interval=10)
    gpus.resume_from_checkpoint = path
    gpus.fit(net)
""",
    "XLA203 XLA718 XLA901: names that come with a star": """\
import torch
from parts import *
def fit(data, settings):
    batches = DataLoader(data, batch_size=8, shuffle=True, pin_memory=True)  # !XLA203 XLA718
    trainer = pl.Trainer(tpu_cores=8, max_epochs=settings.epochs)  # !XLA901
    trainer.fit(Net(settings), batches)
""",
    "XLA901: a name that the file binds itself": """\
import torch
from parts import *
from runners import pl
def fit(net, settings):
    pl.Trainer(tpu_cores=8, max_epochs=settings.epochs).fit(net)
""",
    "XLA905: methods of the Trainer under their old names": f"""\
{TRAINER}
def main():
    set_seed(1)
    model = AutoModelForMaskedLM.from_pretrained("bert-base-cased")
    trainer = Trainer(model, TrainingArguments("out"))
    trainer.train()
    if trainer.is_world_master():  # !XLA905
        trainer.save_model()
    if trainer.is_world_process_zero():
        print("done")
def _mp_fn(index):
    main()
""",
    "XLA209: the program's own function gives the settings": """\
import torch_xla
from trl import SFTConfig, SFTTrainer
class Tuning:
    def __init__(self, model, data):
        self.settings = self.make()
        self.model, self.data = model, data
    @staticmethod
    def make():
        return SFTConfig("out", packing=True, max_length=1024)
    def run(self):
        SFTTrainer(model=self.model, args=self.settings, train_dataset=self.data).train()
""",
    "XLA407: Lightning's Trainer starts the cores": """\
import lightning.pytorch as pl
import torch_xla
from nets import Net
def main(batches):
    device = torch_xla.device()  # !XLA407
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(Net(device), batches)
    print(torch_xla.device())
""",
    "XLA407: one core is no start": """\
import lightning.pytorch as pl
import torch_xla
from nets import Net
def main(batches):
    device = torch_xla.device()
    trainer = pl.Trainer(accelerator="tpu", devices=1)
    trainer.fit(Net(device), batches)
""",
    "XLA112: a read by math has waited": """\
import math
import time
import torch_xla
import torch_xla.core.xla_model as xm
def train(net, adam, batches):
    device = torch_xla.device()
    net = net.to(device)
    for x in batches:
        start = time.time()
        loss = net(x.to(device)).mean()
        loss.backward()
        adam.step()
        perplexity = math.exp(loss)
        print(time.time() - start, perplexity)
        torch_xla.sync()
""",
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_frameworks_are_read_as_they_are_written(name):
    asked = set(name.partition(":")[0].split())
    program = PROGRAMS[name]
    seen = {(row, code) for row, code in found(program) if code in asked}
    assert seen == {(row, code) for row, code in marks(program) if code in asked}


def _lint(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    paths = [folder / f"{name}.py" for name in files]
    results = lint_files(paths, Plan(engine.LintOptions()), jobs=1)
    return {
        (item.filename.rpartition("/")[2], one.locations[0].row, one.code)
        for item in results
        for one in item.result.findings
    }


def test_what_was_asked_before_files_are_linked_is_asked_again():
    # For what device a file is, is asked first, of the names of all that it calls.
    tree = Tree('import torch\nfrom parts import cut\ncut("big")\n')
    names = Names(tree)
    [call] = tree.calls
    assert names.resolve(call.func) == "parts.cut"
    names.link({"parts": Names(Tree("def cut(how):\n    return how\n"))})
    assert names.resolve(call.func) is None
    assert names.definition(call.func).name == "cut"


GPUS = """\
import torch
from apex import amp
from batches import split
def train(net, adam, batches):
    for batch in batches:
        x, y = split(batch)
        loss = net(x, y)
        with amp.scale_loss(loss, adam) as scaled:
            scaled.backward()
        adam.step()
"""
CORES = """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from batches import split
def train(net, adam, batches, settings):
    for batch in pl.MpDeviceLoader(batches, torch_xla.device()):
        x, y = split(batch, settings.length)
        loss = net(x, y)
        adam.zero_grad()
        loss.backward()
        adam.step()
"""
BATCHES = """\
import torch
def split(batch, length=None):
    x, sizes = batch
    if length is None:
        length = torch.max(sizes).item()
    return x[:, :length], sizes
"""


def test_what_training_on_gpus_leaves_out_is_nothing_for_xla(tmp_path):
    seen = _lint(tmp_path, gpus=GPUS, cores=CORES, batches=BATCHES)
    assert not any(name == "batches.py" for name, _, _ in seen)
