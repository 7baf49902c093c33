"""Sums and lists of tensors that carry autograd history from step to step (XLA315).

All programs are invented. ``# !XLA315`` marks a line on which the rule has to find something; no
other line may have such a finding.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks

HEAD = """\
import collections
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
LOOP = """\
def fit(batches, state):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    total, kept, logs = 0.0, [], {"rec": 0.0, "all": []}
    for x, y in pl.MpDeviceLoader(batches, device):
        sgd.zero_grad()
"""
LOSS = """\
out = net(x)
rec = F.mse_loss(out, y)
size = out.abs().mean()
loss = rec + 0.1 * size
loss.backward()
xm.optimizer_step(sgd)
"""


def told(source: str) -> set[tuple[int, str]]:
    return {(row, code) for row, code in found(source) if code == "XLA315"}


def check(body: str, loss: str = LOSS, more: str = "") -> None:
    source = HEAD + more + LOOP + textwrap.indent(loss + body + "\n", " " * 8)
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    "line",
    [
        "total += rec",
        "total = total + size",
        "total += rec.mean() * 4",
        "kept.append(size)",
        "kept.append((rec, size))",
        "kept.append({'rec': rec})",
        "logs['rec'] += rec",
        "logs['all'].append(loss)",
        "state.total += loss",
        "state.history.append(rec)",
        "kept.append(out)",
    ],
)
def test_what_a_loss_is_made_of_brings_its_history_along(line: str):
    check(f"{line}  # !XLA315")


@pytest.mark.parametrize(
    "line",
    [
        "total += rec.detach()",
        "total += rec.item()",
        "kept.append(out.argmax(-1))",
        "total += (out > 0).sum()",
        "kept.append(x)",
        "kept.append(y)",
        "size = size.detach()\ntotal += size",
        "with torch.no_grad():\n    total += rec",
        "part = 0.0\npart += rec",
        "window = []\nwindow.append(rec)",
        "kept.append(rec)\nkept.pop(0)",
        "total += torch.zeros_like(rec)",
    ],
)
def test_what_has_none_or_does_not_go_on(line: str):
    check(line)


def test_sums_that_go_backward_are_the_loss():
    check(
        "",
        """\
parts = []
reg = 0.0
out = net(x)
parts.append(F.mse_loss(out, y))
reg += out.abs().mean()
loss = torch.stack(parts).sum() + reg
loss.backward()
xm.optimizer_step(sgd)
""",
    )


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        ("out = net(x)\nout.loss.backward()\n", "kept.append(out.loss)"),
        ("out = net(x)\nout['loss'].backward()\n", "total += out['loss']"),
        ("(F.mse_loss(net(x), y) / 2).backward()\nrec = 0.0\n", ""),
        ("rec = F.mse_loss(net(x), y)\n(rec / 2).backward()\n", "total += rec"),
        ("loss, out = F.mse_loss(net(x), y), x\nloss.backward()\n", "total += loss"),
    ],
)
def test_losses_as_people_write_them(loss: str, line: str):
    check(f"{line}  # !XLA315" if line else "", loss + "xm.optimizer_step(sgd)\n")


STEP = """\
def step(net, x, y, sgd):
    out = net(x)
    rec, size = F.mse_loss(out, y), out.abs().mean()
    (rec + size).backward()
    xm.optimizer_step(sgd)
    {last}
"""


@pytest.mark.parametrize(
    ("last", "body"),
    [
        ("return rec", "total += step(net, x, y, sgd)  # !XLA315"),
        ("return rec", "rec = step(net, x, y, sgd)\ntotal += rec  # !XLA315"),
        ("return out, size", "out, size = step(net, x, y, sgd)\ntotal += size  # !XLA315"),
        (
            "return {'rec': rec, 'n': len(x)}",
            "stats = step(net, x, y, sgd)\nlogs['rec'] += stats['rec']  # !XLA315",
        ),
        (
            "return {'rec': rec}",
            (
                "stats = step(net, x, y, sgd)\n"
                "for name, value in stats.items():\n"
                "    logs[name] = logs.get(name, 0) + value  # !XLA315"
            ),
        ),
        (
            "rec = rec.detach()\n    return {'rec': rec}",
            "stats = step(net, x, y, sgd)\ntotal += stats['rec']",
        ),
        (
            "return {'rec': rec.item()}",
            "stats = step(net, x, y, sgd)\nfor value in stats.values():\n    total += value",
        ),
    ],
)
def test_what_a_step_gives_back(last: str, body: str):
    check(body, "", STEP.format(last=last))


KEEPER = """\
class Keeper:
    def __init__(self):
        self.total, self.history, self.few = 0.0, [], collections.deque(maxlen=9)
def step(net, x, y, sgd, keeper, losses):
    loss = F.mse_loss(net(x), y)
    loss.backward()
    xm.optimizer_step(sgd)
"""


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("keeper.total += loss  # !XLA315", "step(net, x, y, sgd, state, kept)"),
        ("keeper.history.append(loss)  # !XLA315", "step(net, x, y, sgd, state, kept)"),
        ("losses.append(loss)  # !XLA315", "step(net, x, y, sgd, state, kept)"),
        ("losses.append(loss)", "here = []\nstep(net, x, y, sgd, state, here)"),
        ("losses.append(loss)", "step(net, x, y, sgd, state, [])"),
        ("losses.append(loss.detach())", "step(net, x, y, sgd, state, kept)"),
    ],
)
def test_what_a_step_is_given_to_keep(line: str, call: str):
    check(call, "", f"{KEEPER}    {line}\n")


TRAINER = """\
class Trainer:
    def __init__(self, net):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.total = 0.0
    def forward(self):
        self.loss = F.mse_loss(self.net(self.x), self.y)
    def backward(self):
        self.sgd.zero_grad()
        self.loss.backward()
        xm.optimizer_step(self.sgd)
    def fit(self, batches):
        for x, y in pl.MpDeviceLoader(batches, self.device):
            self.x, self.y = x, y
            self.forward()
            self.backward()
            {line}
"""


@pytest.mark.parametrize(
    "line",
    ["self.total += self.loss  # !XLA315", "self.total += self.loss.item()", "self.total += 1"],
)
def test_a_loss_that_an_object_keeps(line: str):
    source = HEAD + TRAINER.format(line=line)
    assert told(source) == marks(source)


PARTS = """
    total = 0.0
    for epoch in range(4):
        whole = 0.0
        for x, y in pl.MpDeviceLoader(batches, device):
            of_batch = 0.0
            sgd.zero_grad()
            for part, wanted in zip(x.split(16), y.split(16)):
                loss = F.mse_loss(net(part), wanted)
                loss.backward()
                of_batch += loss
                whole += loss  # !XLA315
            xm.optimizer_step(sgd)
            print(epoch, of_batch)
"""


def test_the_parts_of_a_batch_are_summed_up_for_one_step():
    head = LOOP.partition("    for x, y")[0]
    source = HEAD + head + PARTS
    assert told(source) == marks(source)
    # Each turn of the inner loop is a step by itself: what the outer one sets anew is an epoch's.
    source = source.replace("            xm.optimizer_step(sgd)\n", "")
    source = source.replace(
        "                of_batch += loss\n",
        "                xm.optimizer_step(sgd)\n                of_batch += loss  # !XLA315\n",
    )
    assert told(source) == marks(source)


def test_the_parts_of_a_batch_in_a_step_of_the_trainer_end_with_it():
    program = """\
import torch_xla
from transformers import Trainer


class Parts(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        total = 0.0
        for part in self.cut(inputs):
            loss = self.compute_loss(model, part)
            loss.backward()
            total += loss
            self.all += loss  # !XLA315
        return total.detach()
"""
    assert {one for one in found(program) if one[1] == "XLA315"} == marks(program)
