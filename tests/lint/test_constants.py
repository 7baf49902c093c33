"""What the program's own constants decide: code behind a condition that never holds is not told.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told, told_in_files

HEAD = """\
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
TAGGER = """\
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, width, export=False, head="tags"):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.export = export
        self.head = head

    def forward(self, x):
        out = self.layer(x)
        if self.export:
            return out
        {read}
        if self.head == "spans":
            {other}
        return out
"""
READ = 'print("seen", out.mean().item())'
RUNS = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from tagger import Tagger


def label(batches):
    device = torch_xla.device()
    tagger = Tagger({given}).to(device).eval()
    {after}
    with torch.no_grad():
        for x in pl.MpDeviceLoader(batches, device):
            tagger(x)


if __name__ == "__main__":
    label(torch.load("batches.pt"))
"""
FIRST, SECOND = ("tagger.py", 16, "XLA101"), ("tagger.py", 18, "XLA101")


@pytest.mark.parametrize(
    ("given", "after", "expected"),
    [
        ("8, export=True", "pass", set()),
        ("8, False, 'tags'", "pass", {FIRST}),
        ("8, export=False, head='spans'", "pass", {FIRST, SECOND}),
        # Nobody gives it, so it is there for somebody else.
        ("8", "pass", {FIRST, SECOND}),
        ("8, export=ask.export, head='tags'", "pass", {FIRST}),
        ("**settings", "pass", {FIRST, SECOND}),
        ("8, export=True", "tagger.export = batches.raw", {FIRST, SECOND}),
        ("8, export=True", "setattr(tagger, 'export', False)", {FIRST, SECOND}),
        ("8, export=True", "other = Tagger(8, export=False, head='tags')", {FIRST}),
        ("8, export=True", "make = Tagger", {FIRST, SECOND}),
        ("8, export=True", "tagger.head = 'spans'", set()),
    ],
)
def test_what_all_calls_give_a_constructor_decides(tmp_path, given, after, expected):
    files = {
        "tagger.py": TAGGER.format(read=READ, other=READ),
        "label.py": RUNS.format(given=given, after=after),
    }
    assert told_in_files(tmp_path, files, {"XLA101"}) == expected


def test_a_module_that_tries_itself_out_says_nothing_of_others(tmp_path):
    tried = 'if __name__ == "__main__":\n    Tagger(8, export=True)(torch.ones(1, 8))\n'
    files = {"tagger.py": TAGGER.format(read=READ, other=READ) + tried}
    files["label.py"] = RUNS.format(given="8", after="pass")
    assert told_in_files(tmp_path, files, {"XLA101"}) == {FIRST, SECOND}


LOOP = f"""\
{HEAD}
class Loop{{bases}}:
    def __init__(self, net, adam, use_tpu=True, loud=True):
        self.net = net
        self.adam = adam
        self.profiling = False
        self.sink = None
        self.use_tpu = use_tpu
        {{set}}

    def start_profile(self):
        self.profiling = True

    def run(self, batches):
        device = torch_xla.device()
        for x, y in pl.MpDeviceLoader(batches, device):
            loss = self.net(x, y)
            loss.backward()
            xm.optimizer_step(self.adam)
            if self.profiling:
                print(loss.item()){{profiled}}
            if self.sink is not None:
                print(loss.item()){{sunk}}
            if not self.use_tpu:
                continue
            torch_xla.sync()


def main(batches):
    net = torch.nn.Linear(2, 2).to(torch_xla.device())
    loop = Loop(net, torch.optim.Adam(net.parameters()), use_tpu=True)
    {{more}}
    loop.run(batches)


main(torch.load("batches.pt"))
"""
NO, TOLD = "", "  # !XLA101"


@pytest.mark.parametrize(
    ("bases", "line", "more", "profiled", "sunk"),
    [
        ("", "pass", "pass", NO, NO),
        ("(Base)", "pass", "pass", TOLD, TOLD),
        ("(torch.nn.Module)", "super().__init__()", "pass", NO, NO),
        ("", "pass", "loop.start_profile()", TOLD, NO),
        ("", "self.later = lambda: self.start_profile()", "pass", TOLD, NO),
        ("", "self.sink = open(net.log)", "pass", NO, TOLD),
        ("", "pass", "loop.sink = open('log')", NO, TOLD),
        ("", "for key in net: setattr(self, key, net[key])", "pass", TOLD, TOLD),
        ("", "self.__dict__.update(net.settings)", "pass", TOLD, TOLD),
        ("", "hooks.install(self)", "pass", NO, NO),
        ("", "torch.hub.set_dir(self)", "pass", NO, NO),
    ],
)
def test_an_attribute_that_nothing_else_sets_decides(bases, line, more, profiled, sunk):
    program = LOOP.format(bases=bases, set=line, more=more, profiled=profiled, sunk=sunk)
    assert set(told("XLA101", program)) == marks(program)


def test_what_a_method_that_others_run_calls_is_called():
    program = LOOP.format(
        bases="(torch.nn.Module)",
        set="super().__init__()\n\n    def forward(self, x):\n        self.start_profile()",
        more="pass",
        profiled=TOLD,
        sunk=NO,
    )
    assert set(told("XLA101", program)) == marks(program)


def test_a_library_may_set_attributes_of_what_it_is_given():
    program = LOOP.format(bases="", set="run_search(self)", more="pass", profiled=TOLD, sunk=TOLD)
    program = "from tuning import run_search\n" + program
    assert set(told("XLA101", program)) == marks(program)


PROGRAMS = {
    "XLA101: a function that is always called so": f"""\
{HEAD}
def step(net, x, y, verbose, kind="mean", device="xla"):
    loss = net(x, y)
    if verbose:
        print(loss.item())
    if kind not in ("mean", "sum"):
        print(loss.item())
    if kind == "sum":
        print(loss.item())  # !XLA101
    if device == "cpu":
        return loss
    print(loss.item())  # !XLA101
    return loss


def fit(net, adam, batches):
    for x, y in pl.MpDeviceLoader(batches, torch_xla.device()):
        step(net, x, y, False, kind="mean", device="xla").backward()
        step(net, x, y, verbose=False, kind="sum", device="xla").backward()
        xm.optimizer_step(adam)


net = torch.nn.Linear(2, 2).to(torch_xla.device())
fit(net, torch.optim.Adam(net.parameters()), torch.load("batches.pt"))
""",
    "XLA101: a function that is handed on": f"""\
{HEAD}
def step(net, x, y, verbose):
    loss = net(x, y)
    if verbose:
        print(loss.item())  # !XLA101
    return loss


def fit(net, adam, batches, wrap):
    for x, y in pl.MpDeviceLoader(batches, torch_xla.device()):
        step(net, x, y, False).backward()
        wrap(step)(net, x, y, True)
        xm.optimizer_step(adam)


net = torch.nn.Linear(2, 2).to(torch_xla.device())
fit(net, torch.optim.Adam(net.parameters()), torch.load("batches.pt"), torch.compile)
""",
    "XLA101 XLA207: a class of settings": f"""\
{HEAD}
class Settings:
    mix = False
    mixes_up = True
    use_tpu = False
    watched = False


def fit(net, adam, batches, ask):
    Settings.watched = ask.watched
    for x, y in pl.MpDeviceLoader(batches, torch_xla.device()):
        throw = random.random()
        if Settings.mix and throw < 0.5:
            x = x + x.flip(0)
        if Settings.mixes_up and throw < 0.5:  # !XLA207
            x = x + x.flip(0)
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
        if Settings.mix:
            print(loss.item())
        if Settings.use_tpu:
            print(loss.item())  # !XLA101
        if Settings.watched:
            print(loss.item())  # !XLA101
""",
    "XLA101: a class of settings that is filled in": f"""\
{HEAD}
class Settings:
    mix = False


def fit(net, adam, batches, ask):
    for name in vars(ask):
        setattr(Settings, name, getattr(ask, name))
    for x, y in pl.MpDeviceLoader(batches, torch_xla.device()):
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
        if Settings.mix:
            print(loss.item())  # !XLA101
""",
    "XLA312: checkpoints that only a library turns on": f"""\
{HEAD}
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel


class Reader(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gradient_checkpointing = False
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        if self.gradient_checkpointing and self.training:
            return checkpoint(self.layer, x)
        return self.layer(x)


reader = Reader(None).to(torch_xla.device())
""",
    "XLA312: checkpoints that the program turns on": f"""\
{HEAD}
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel


class Reader(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gradient_checkpointing = False
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        if self.gradient_checkpointing and self.training:
            return checkpoint(self.layer, x)  # !XLA312
        return self.layer(x)


reader = Reader(None).to(torch_xla.device())
reader.gradient_checkpointing_enable()  # !XLA312
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_constants_decide(name):
    program = PROGRAMS[name]
    assert set(told(name, program)) == marks(program)


SPLIT = """\
import torch
from torch import nn
from docs import add_docstring


@add_docstring("two halves")
class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.Linear(2, 2)
        self.split = False

    @add_docstring("over GPUs")
    def spread(self, places):
        self.split = True
        self.lower.to(places[0])

    def forward(self, x):
        if self.split:
            torch.cuda.set_device(x.device){told}
        return self.lower(x)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.halves = Halves()

    def spread(self, places):
        self.halves.spread(places)

    def forward(self, x):
        return self.halves(x)
"""
TRAINS = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from halves import Whole

whole = Whole()
{more}
whole.to(torch_xla.device())
adam = torch.optim.Adam(whole.parameters())
for x in pl.MpDeviceLoader(torch.load("batches.pt"), torch_xla.device()):
    whole(x).sum().backward()
    xm.optimizer_step(adam)
"""


@pytest.mark.parametrize(
    ("more", "mark"),
    [("whole.eval()", ""), ("whole.spread(['cuda:0'])", "  # !XLA707")],
)
def test_what_a_method_sets_that_nothing_calls(tmp_path, more, mark):
    files = {"halves.py": SPLIT.format(told=mark), "train.py": TRAINS.format(more=more)}
    assert told_in_files(tmp_path, files, {"XLA707"}) == marks_in_files(files)


def test_a_local_setting_is_there_to_be_changed():
    program = f"""\
{HEAD}
def fit(net, adam, batches):
    loud = False
    for x, y in pl.MpDeviceLoader(batches, torch_xla.device()):
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
        if loud:
            print(loss.item())  # !XLA101
"""
    assert {one for one in found(program) if one[1] == "XLA101"} == marks(program)


DIVIDED = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import transformers


class Writer(transformers.GPT2Model):
    def __init__(self, config):
        super().__init__(config)
        self.model_parallel = False

    def forward(self, x):
        if self.model_parallel:
            print("seen", x.mean().item()){mark}
        return super().forward(x)


def write(config, batches):
    device = torch_xla.device()
    writer = Writer(config).to(device).eval()
    {after}
    with torch.no_grad():
        for x in pl.MpDeviceLoader(batches, device):
            writer(x)


write(load(), [])
"""


@pytest.mark.parametrize(
    ("after", "runs"),
    [
        ("pass", False),
        ("writer.parallelize()", True),
        ("writer.model_parallel = config.wide", True),
    ],
)
def test_a_model_of_transformers_that_nothing_divides_over_gpus(after, runs):
    program = DIVIDED.format(after=after, mark="  # !XLA101" if runs else "")
    assert told("XLA101", program) == {one for one in marks(program) if one[1] == "XLA101"}
