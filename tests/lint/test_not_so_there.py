"""What holds of a line elsewhere, and not where it stands: other branches, helpers, last batches.

All programs are invented. ``# !XLA208`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

XM = """\
import random
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
STEPS = """\
def train(model, loader, optimizer, training):
    device = torch_xla.device()
    model.to(device)
    for images in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(window(images, training)).mean().backward()
        xm.optimizer_step(optimizer)
"""

PROGRAMS = {
    "XLA208: the same name in the other branch": f"""\
{XM}
def window(x, training):
    side = x.shape[-1]
    if training:
        at = random.randint(0, side - 64)
        shift = torch.arange(64, device=x.device) + float(at)
        return x.index_select(-1, shift.long())
    else:
        at = (side - 64) // 2
        return x[..., at : at + 64]

{STEPS}""",
    "XLA208: the same name once more": f"""\
{XM}
def window(x, training):
    at = random.randint(0, 8)
    print(at)
    at = 4
    return x[..., at : at + 64]

{STEPS}""",
    "XLA208: drawn in one of the ways to it": f"""\
{XM}
def window(x, training):
    at = 16
    if training:
        at = random.randint(0, 32)
    return x[..., at : at + 64]  # !XLA208

{STEPS}""",
    "XLA208: drawn in its own branch": f"""\
{XM}
def window(x, training):
    if training:
        at = random.randint(0, 32)
        return x[..., at : at + 64]  # !XLA208
    at = 16
    return x[..., at : at + 64]

{STEPS}""",
}

PROGRAMS |= {
    "XLA405: neighbours that send each other tensors": f"""\
{XM}
import torch_xla.distributed.xla_multiprocessing as xmp
from stages import behind, before, stage

def exchanged(shape, sent):
    taken = torch.zeros(shape, device=torch_xla.device())
    if xm.get_ordinal() % 2:
        taken = xm.all_reduce(xm.REDUCE_SUM, taken, groups=before())
    else:
        xm.all_reduce(xm.REDUCE_SUM, sent, groups=behind())
    if xm.get_ordinal() > 0:
        xm.all_reduce(xm.REDUCE_SUM, sent)  # !XLA405
    return taken

def run(rank):
    print(exchanged((8, 8), torch.ones(8, 8, device=torch_xla.device())))

xmp.spawn(run)
""",
    "XLA405: one group of written cores": f"""\
{XM}
import torch_xla.distributed.xla_multiprocessing as xmp

def run(rank):
    sent = torch.ones(8, 8, device=torch_xla.device())
    if xm.get_ordinal() % 2:
        xm.all_reduce(xm.REDUCE_SUM, sent, groups=[[0, 1], [2, 3]])  # !XLA405
    xm.all_reduce(xm.REDUCE_SUM, sent, groups=[[0, 2], [1, 3]])

xmp.spawn(run)
""",
}
LEAVES = f"""\
{XM}
def epoch(model, optimizer, batches, last, limit):
    for number, images in enumerate(batches):
        if {{test}}:
            break{{mark}}
        optimizer.zero_grad()
        model(images).mean().backward()
        xm.optimizer_step(optimizer)

def goes_on(trainer, limit):
    return trainer.rate > 0.001 and trainer.steps < limit

def train(trainer, model, loader, optimizer, limit):
    device = torch_xla.device()
    model.to(device)
    {{around}}:
        made = pl.ParallelLoader(loader, [device])
        epoch(model, optimizer, made.per_device_loader(device), len(loader) - 1, limit)
"""


@pytest.mark.parametrize(
    ("around", "test", "mark"),
    [
        ("for turn in range(8)", "number == last", ""),
        ("for turn in range(8)", "number >= last", ""),
        ("for turn in range(8)", "number == limit", "  # !XLA608"),
        ("for turn in range(8)", "last == 7", "  # !XLA608"),
        ("for turn in range(8)", "model.steps >= limit", "  # !XLA608"),
        ("while goes_on(trainer, limit)", "model.steps >= limit", ""),
        ("while goes_on(trainer, limit)", "model.steps >= last", "  # !XLA608"),
    ],
)
def test_who_leaves_a_loader_behind(around, test, mark):
    program = LEAVES.format(around=around, test=test, mark=mark)
    assert told("XLA608", program) == marks(program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


WORDS = """\
import torch

def encoded(texts, length=16):
    lists = [[ord(letter) for letter in text] for text in texts]
    ids = torch.zeros(len(lists), length, dtype=torch.long)
    {fill}
    return ids
"""
FED = f"""\
{XM}
import words

def train(model, loader, optimizer):
    device = torch_xla.device()
    model.to(device)
    for pictures, texts in pl.MpDeviceLoader(loader, device):
        ids = words.encoded(texts).to(device){{mark}}
        optimizer.zero_grad()
        model(pictures, ids).mean().backward()
        xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    ("fill", "mark"),
    [
        (
            "for row, one in enumerate(lists):\n        ids[row, : len(one)] = torch.tensor(one)",
            "  # !XLA603",
        ),
        ("ids[:, 0] = 1", "  # !XLA604"),
        ("print(length)", "  # !XLA604"),
    ],
)
def test_what_a_helper_fills_with_content_of_the_host(tmp_path, fill, mark):
    files = {"words.py": WORDS.format(fill=fill), "train.py": FED.format(mark=mark)}
    assert told_in_files(tmp_path, files, {"XLA603", "XLA604"}) == marks_in_files(files)


SPEED = f"""\
{XM}
import time
from others import work

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.layer(x)

def measure(loader):
    net = Net().to(torch_xla.device())
    net.eval()
    began, seen, kept, last = time.time(), 0, [], 0
    with torch.no_grad():
        for images, labels in torch.utils.data.DataLoader(loader, batch_size=8):{{mark}}
            {{turn}}
            seen += images.size(0)
    print(seen / (time.time() - began), last)
"""


def test_a_model_that_keeps_what_it_has_seen_is_another_matter():
    program = SPEED.format(turn="out = net(images)", mark="  # !XLA301")
    kept = "y = self.layer(x)\n        self.queue[0] = y.mean(0)\n        return y"
    program = program.replace("return self.layer(x)", kept).replace(
        "self.layer = torch.nn.Linear(8, 2)",
        "self.layer = torch.nn.Linear(8, 2)\n"
        '        self.register_buffer("queue", torch.zeros(8, 2))',
    )
    assert told("XLA301", program) == marks(program)


@pytest.mark.parametrize(
    ("turn", "mark"),
    [
        ("out = net(images)", ""),
        ("out = work(net, images)", "  # !XLA301"),
        ("out = torch.relu(net(images)).mean()", ""),
        ("kept.append(net(images))", "  # !XLA301"),
        ("last = last + net(images).mean()", "  # !XLA301"),
        ("last += net(images).mean()", "  # !XLA301"),
        ("best = torch.max(last, net(images)); last = best", "  # !XLA301"),
        ("net.seen = net(images)", "  # !XLA301"),
    ],
)
def test_who_measures_a_model_that_stands_on_the_device(turn, mark):
    program = SPEED.format(turn=turn, mark=mark)
    assert told("XLA301 XLA603", program) == marks(program)
