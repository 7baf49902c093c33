"""What programs call by a name: callbacks of their own engines, registries, handed-on arguments.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

XLA = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
START = f"""\
{XLA}
from trainer import Trainer
from watchers import Best, Progress
def start(net, batches, adam, criterion):
    device = torch_xla.device()
    net.to(device)
    trainer = Trainer(net, adam, criterion, [Progress(), Best()])
    trainer.run(pl.MpDeviceLoader(batches, device), 3)
"""
#: ``%(tell)s``: how watchers are told; ``%(batch)s`` and ``%(epoch)s``: where.
TRAINER = """\
import torch_xla.core.xla_model as xm
class When:
    BATCH = "batch_done"
    EPOCH = "epoch_done"
class Trainer:
    def __init__(self, net, adam, criterion, watchers):
        self.net, self.adam, self.criterion = net, adam, criterion
        self.watchers = watchers
%(tell)s
    def run(self, batches, epochs):
        for self.epoch in range(epochs):
            for x, y in batches:
                self.adam.zero_grad()
                self.loss = self.criterion(self.net(x), y)
                self.loss.backward()
                xm.optimizer_step(self.adam)
                %(batch)s
            %(epoch)s
"""
WATCHERS = """\
class Watcher:
    def batch_done(self, trainer):
        pass
class Progress(Watcher):
    def batch_done(self, trainer):
        print(trainer.loss.item())  # !XLA101
class Best(Watcher):
    def epoch_done(self, trainer):
        self.best = trainer.loss.item()
"""
ASKING = """\
class Watcher:
    def __call__(self, event, trainer):
        method = getattr(self, event, None)
        return method is not None and method(trainer)
class Progress(Watcher):
    def batch_done(self, trainer):
        print(trainer.loss.item())  # !XLA101
class Best(Watcher):
    def epoch_done(self, trainer):
        self.best = trainer.loss.item()
"""
#: How an engine tells its watchers: its method, its two calls, and the watchers.
ENGINES = {
    "at once": (
        """\
    def tell(self, event):
        for watcher in self.watchers:
            getattr(watcher, event)(self)
""",
        'self.tell("batch_done")',
        'self.tell("epoch_done")',
        WATCHERS,
    ),
    "by a name in between": (
        """\
    def tell(self, event):
        for watcher in self.watchers:
            method = getattr(watcher, event, None)
            if callable(method):
                method(self)
""",
        'self.tell(event="batch_done")',
        'self.tell(event="epoch_done")',
        WATCHERS,
    ),
    "a name put together": (
        """\
    def tell(self, what):
        for watcher in self.watchers:
            getattr(watcher, f"{what}_done")(self)
""",
        'self.tell("batch")',
        'self.tell("epoch")',
        WATCHERS,
    ),
    "a sum of texts": (
        """\
    def tell(self, what):
        return [getattr(watcher, what + "_done")(self) for watcher in self.watchers]
""",
        'self.tell("batch")',
        'self.tell("epoch")',
        WATCHERS,
    ),
    "the object itself is called": (
        """\
    def __call__(self, event):
        for watcher in sorted(self.watchers, key=id):
            getattr(watcher, event, print)(self)
""",
        'self("batch_done")',
        'self("epoch_done")',
        WATCHERS,
    ),
    "all arguments are handed on": (
        """\
    def tell(self, event, *args, **kwargs):
        for watcher in self.watchers:
            getattr(watcher, event)(*args, **kwargs)
""",
        'self.tell("batch_done", self)',
        'self.tell("epoch_done", self)',
        WATCHERS,
    ),
    "constants of a class": (
        """\
    def tell(self, event):
        for watcher in self.watchers:
            getattr(watcher, event)(self)
""",
        "self.tell(When.BATCH)",
        "self.tell(When.EPOCH)",
        WATCHERS,
    ),
    "the watcher looks for its own method": (
        """\
    def tell(self, event):
        for watcher in self.watchers:
            watcher(event, self)
""",
        'self.tell("batch_done")',
        'self.tell("epoch_done")',
        ASKING,
    ),
}

LOSSES = """\
from torch import nn
class Focal(nn.Module):
    def forward(self, out, target):
        far = (out - target).abs().max().item()  # !XLA101
        return far * out.mean()
class Overlap(nn.Module):
    def forward(self, out, target):
        return (out * target).mean()
"""
LOOP = """\
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
"""
#: How a program comes by its loss: its own file, and that of the losses.
REGISTRIES = {
    "a table of classes": (
        f"""\
{XLA}
from losses import build
def train(net, batches, adam, args):
    criterion = build(args.loss)
{LOOP}""",
        f"""\
{LOSSES}
KNOWN = {{"focal": Focal, "overlap": Overlap}}
def build(name, **given):
    return KNOWN[name](**given)
""",
    ),
    "a choice of classes": (
        f"""\
{XLA}
from losses import Focal, Overlap
def train(net, batches, adam, args):
    kind = Focal if args.focal else Overlap
    criterion = kind()
{LOOP}""",
        LOSSES,
    ),
    "a class that is handed on": (
        f"""\
{XLA}
import functools
from losses import Focal
def made(kind):
    return kind()
def train(net, batches, adam, args):
    criterion = made(functools.partial(Focal))
{LOOP}""",
        LOSSES,
    ),
    "a class as an attribute": (
        f"""\
{XLA}
from losses import Focal
class Recipe:
    loss_class = Focal
    def build(self):
        return self.loss_class()
def train(net, batches, adam):
    criterion = Recipe().build()
{LOOP}""",
        LOSSES,
    ),
    "classes of a module": (
        f"""\
{XLA}
import losses
def train(net, batches, adam, args):
    criterion = getattr(losses, args.loss)()
{LOOP}""",
        LOSSES,
    ),
    "classes that a decorator keeps": (
        f"""\
{XLA}
from losses import build
def train(net, batches, adam, args):
    criterion = build(args.loss)
{LOOP}""",
        """\
from torch import nn
KNOWN = {}
def known_as(name):
    def keep(cls):
        KNOWN[name] = cls
        return cls
    return keep
@known_as("focal")
class Focal(nn.Module):
    def forward(self, out, target):
        far = (out - target).abs().max().item()  # !XLA101
        return far * out.mean()
def build(name):
    return KNOWN[name]()
""",
    ),
    "measures of a module, one after the other": (
        f"""\
{XLA}
import losses
def train(net, batches, adam, criterion):
    measures = [getattr(losses, name) for name in ("hits", "near")]
    total = dict.fromkeys(["hits", "near"], 0)
{LOOP}
        for measure in measures:
            total[measure.__name__] += measure(net(x), y)
""",
        """\
import torch
def hits(out, target):
    with torch.no_grad():
        right = (out.argmax(1) == target).sum()
    return right
def near(out, target):
    best = out.topk(3, dim=1)[1]
    return sum((best[:, i] == target).sum().item() for i in range(3))  # !XLA101
def once(out):
    return out.sum().item()
""",
    ),
}


def _told(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return {
        (name, row, code)
        for result in lint_files(sorted(tmp_path.iterdir()), Plan(engine.LintOptions()))
        for finding in result.result.findings
        for name, row, code in [
            (
                finding.locations[0].filename.rpartition("/")[2],
                finding.locations[0].row,
                finding.code,
            )
        ]
        if code.startswith("XLA1")
    }


def _expected(files):
    return {(name, row, code) for name, text in files.items() for row, code in marks(text)}


@pytest.mark.parametrize("name", ENGINES)
def test_method_that_an_engine_asks_for_by_name_runs_where_the_name_is_written(tmp_path, name):
    tell, batch, epoch, watchers = ENGINES[name]
    trainer = TRAINER % {"tell": tell, "batch": batch, "epoch": epoch}
    files = {"main.py": START, "trainer.py": trainer, "watchers.py": watchers}
    assert _told(tmp_path, files) == _expected(files)


@pytest.mark.parametrize("name", REGISTRIES)
def test_class_or_function_that_is_chosen_by_name_is_followed(tmp_path, name):
    main, losses = REGISTRIES[name]
    files = {"main.py": main, "losses.py": losses}
    assert _told(tmp_path, files) == _expected(files)


def test_program_for_gpus_with_the_same_engine_is_left_alone(tmp_path):
    tell, batch, epoch, watchers = ENGINES["at once"]
    trainer = TRAINER.replace("import torch_xla.core.xla_model as xm\n", "")
    trainer = trainer.replace("xm.optimizer_step(self.adam)", "self.adam.step()")
    main = START.replace("torch_xla.device()", 'torch.device("cuda")')
    main = "\n".join(line for line in main.splitlines() if "import torch_xla" not in line)
    main = main.replace("pl.MpDeviceLoader(batches, device)", "batches")
    files = {
        "main.py": main,
        "trainer.py": trainer % {"tell": tell, "batch": batch, "epoch": epoch},
        "watchers.py": watchers,
    }
    assert _told(tmp_path, files) == set()
