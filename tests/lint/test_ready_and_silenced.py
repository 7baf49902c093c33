"""Code that is ready for a failure, prints that are silenced elsewhere, seeds made equal again.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
COUNTED = """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def rows(loader):
    fed = pl.MpDeviceLoader(loader, torch_xla.device())
    try:
        return len(fed.dataset)
    except {caught}:
        {then}
"""
ASSERTED = """\
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def rows(loader):
    fed = pl.MpDeviceLoader(loader, torch_xla.device())
    assert hasattr(fed, "{asserted}"), "rows are counted by the dataset"
    return len(fed.dataset){mark}
"""
SEEDED = f"""\
import random
{XM}
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, seen):
        return self.layer(seen)


def play(index, options, envs):
    rank = index
    # first
    random.seed(options.seed)
    torch.manual_seed(SEED)
    device = torch_xla.device()
    policy = Policy().to(device)  # !XLA426
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    seen = envs.reset()
    for turn in range(options.turns):
        with torch.no_grad():
            scores = policy(torch.as_tensor(seen, device=device))
        noise = torch.rand_like(scores)  # !XLA434
        chosen = (scores + noise).argmax(-1)
        seen, reward, done, _ = envs.step(chosen.cpu().numpy())
    for x, y in pl.MpDeviceLoader(options.rows, device):
        optimizer.zero_grad()
        (policy(x) - y).pow(2).mean().backward()
        xm.optimizer_step(optimizer)


def main(options, envs):
    xmp.spawn(play, args=(options, envs))
"""


def seeded(first, seed, *, own=False):
    """The program with this line before the seeds; it tells of weights that are each core's own."""
    text = SEEDED.replace("# first", first).replace("SEED", seed)
    return text if own else text.replace("  # !XLA426", "")


ACCELERATED = """\
import os

import torch
from accelerate import Accelerator
from torch import nn


def fit(rows, wide):
    # for TPUs
    accelerator = Accelerator(
        split_batches=True,  # !XLA906
        mixed_precision="bf16" if wide else None,
    )
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    for x, y in rows:
        accelerator.backward((model(x) - y).pow(2).mean())
        optimizer.step()
"""

STEPPED = """\
import torch
import torch_xla.core.xla_model as xm
from {package} import build


class Engine:
    def __init__(self, net, options):
        self.net, self.optimizer = net, build(options, net.parameters())

    def halve(self):
        for p in self.net.parameters():
            p.grad.{alias}.div_(2)  # !XLA307

    def step(self, loss, seen):
        loss.backward()
        {before}
        xm.reduce_gradients(self.optimizer)
        {behind}
        self.optimizer.step()
"""


def stepped(package="fairseq.optim", alias="data", before="pass", behind="pass"):
    """The program, with these calls around the reduction."""
    text = STEPPED.format(package=package, alias=alias, before=before, behind=behind)
    return text if "halve" in before else text.replace("(2)  # !XLA307", "(2)")


TEXTS = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def prepare(options):
    device = torch_xla.device()
    rank = xr.global_ordinal()
    where = {text}
    print("core", f"{device}/{rank}")
    return device, options.net.to(device), where


def train(options):
    device, net, where = prepare(options)
    fed = pl.ParallelLoader(options.rows, [{given}])  # !XLA416
    for x in fed.per_device_loader({given}):
        net(x).sum().backward()
        xm.optimizer_step(options.optimizer)
"""


def texts(text, given="where", *, told=False):
    """The program with this text beside the device."""
    program = TEXTS.replace("{text}", text).replace("{given}", given)
    return program if told else program.replace("  # !XLA416", "")


PROGRAMS = {
    "XLA416: a text with the core's number in it": texts('f"{device}/{rank}"', told=True),
    "XLA416: by format, on several cores": texts(
        'str(device) if rank < 0 else "{}/{}".format(device, rank)', told=True
    ),
    "XLA416: the device as a text": texts("str(device)"),
    "XLA416: a text that is shown": texts('f"{device}/{rank}"', "device"),
    "XLA307: a method that is called before the reduction": stepped(before="self.halve()"),
    "XLA307: a method that is called behind it": stepped(behind="self.halve()"),
    "XLA307: fairseq's before it": stepped(before="self.optimizer.multiply_grads(2.0)  # !XLA307"),
    "XLA307: fairseq's behind it": stepped(behind="self.optimizer.multiply_grads(2.0)"),
    "XLA307: of another package": stepped("engines", before="self.optimizer.multiply_grads(2.0)"),
    "XLA422: nothing catches what is missing": COUNTED.format(
        caught="KeyError", then="return 0"
    ).replace("fed.dataset)", "fed.dataset)  # !XLA422"),
    "XLA422: what is missing is caught": COUNTED.format(
        caught="(AttributeError, TypeError)", then="return len(fed) * 8"
    ),
    "XLA422: what is missing is caught, and ends the run": COUNTED.format(
        caught="AttributeError", then="raise ValueError from None"
    ).replace("fed.dataset)", "fed.dataset)  # !XLA422"),
    "XLA422: what is missing is refused before": ASSERTED.format(asserted="dataset", mark=""),
    "XLA422: something else is refused before": ASSERTED.format(
        asserted="sampler", mark="  # !XLA422"
    ),
    "XLA426 XLA434: the number of the core is added, and taken again": seeded(
        "options.seed += rank", "options.seed - rank"
    ),
    "XLA426 XLA434: the same in a name": seeded("seed = options.seed + rank", "seed - rank"),
    "XLA426 XLA434: more is taken than was added": seeded(
        "options.seed += 1", "options.seed - rank", own=True
    ),
    "XLA426 XLA434: added, and not taken again": seeded(
        "options.seed += rank", "options.seed", own=True
    ),
    "XLA906: a variable that Accelerate reads on TPUs alone": ACCELERATED.replace(
        "# for TPUs", 'os.environ["ACCELERATE_DOWNCAST_BF16"] = "true"'
    ),
    "XLA906: the same program for any device": ACCELERATED.replace("  # !XLA906", ""),
}

LOUD = f"""\
{XM}
from parallel import prepare
from work import Worker


def _mp_fn(index, rows):
    prepare(xm.is_master_ordinal())
    Worker(rows).run(torch_xla.device())


xmp.spawn(_mp_fn, args=([],))
"""
WORK = """\
class Worker:
    def __init__(self, rows):
        self.rows = rows

    def run(self, device):
        print("begins")  # !XLA401
        for row in self.rows:
            row = row.to(device)
        print("ends")  # !XLA401
"""
#: Files of a project by the rules that they are about.
PROJECTS = {
    "XLA401: another function": {"main.py": LOUD, "work.py": WORK},
    "XLA401: a function of another file that is named for it silences the other cores": {
        "main.py": LOUD.replace("import prepare", "import suppress_output").replace(
            "prepare(", "suppress_output("
        ),
        "work.py": WORK.replace("  # !XLA401", ""),
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_told_where_it_is(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


@pytest.mark.parametrize("name", PROJECTS)
def test_over_the_files_of_a_project(name, tmp_path):
    asked = name.partition(":")[0].split()
    assert told_in_files(tmp_path, PROJECTS[name], asked) == marks_in_files(PROJECTS[name])
