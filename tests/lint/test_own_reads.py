"""Objects of libraries that read their own counts, or what they are given, on each call."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from ema_pytorch import EMA
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchmetrics import MeanMetric, MeanSquaredError
import torchmetrics
"""
STEPS = """
    for x, y in pl.MpDeviceLoader(batches, device):
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
"""
PROGRAMS = {
    "averages that are placed on the device": f"""\
HEAD
def fit(net, batches):
    device = torch_xla.device()
    net.to(device)
    named = AveragedModel(net, device=device)
    placed = AveragedModel(net, torch_xla.device())
    chained = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99)).to(device)
    moved = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    moved.to("xla")
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
{STEPS}
        named.update_parameters(net)  # !XLA109
        placed.update_parameters(net)  # !XLA109
        chained.update_parameters(net)  # !XLA109
        moved.update_parameters(net)  # !XLA109
""",
    "averages whose count is on the host": f"""\
HEAD
def fit(net, batches, epochs):
    device = torch_xla.device()
    net.to(device)
    beside = AveragedModel(net)
    away = AveragedModel(net, device="cpu")
    late = AveragedModel(net, device=device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
{STEPS}
        beside.update_parameters(net)
        away.update_parameters(net)
    late.update_parameters(net)
""",
    "handed on, and kept by an object": f"""\
HEAD
def train(net, batches, device, sgd=None, averaged=None):
{STEPS}
        if averaged is not None:
            averaged.update_parameters(net)  # !XLA109
def main(batches):
    device = torch_xla.device()
    net = torch.nn.Linear(4, 4).to(device)
    averaged = None
    if FLAGS.decay:
        averaged = AveragedModel(net)
        averaged.to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, batches, device, sgd, averaged=averaged)
    train(net, batches, device, sgd)
class Trainer:
    def __init__(self, net, batches):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.smooth = EMA(self.net, beta=0.99).to(self.device)
        self.other = EMA(self.net, beta=0.99)
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.batches = batches
    def fit(self):
        for x, y in pl.MpDeviceLoader(self.batches, self.device):
            torch.nn.functional.mse_loss(self.net(x), y).backward()
            self.sgd.step()
            self.smooth.update()  # !XLA109
            self.other.update()
Trainer(torch.nn.Linear(4, 4), BATCHES).fit()
""",
    "metrics that look for NaN": f"""\
HEAD
def fit(net, batches):
    device = torch_xla.device()
    net.to(device)
    mean = MeanMetric().to(device)
    most = torchmetrics.aggregation.MaxMetric(nan_strategy="ignore")
    quiet = torchmetrics.MeanMetric(nan_strategy="disable").to(device)
    error = MeanSquaredError().to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
{STEPS}
        mean.update(loss.detach())  # !XLA109
        mean(loss.detach())  # !XLA109
        most.update(loss.detach())  # !XLA109
        quiet.update(loss.detach())
        error.update(net(x).detach(), y)
        mean.update(x.size(0))
""",
    "metrics that look for unknown labels": f"""\
HEAD
def fit(net, batches):
    device = torch_xla.device()
    net.to(device)
    several = torchmetrics.Accuracy(task="multiclass", num_classes=5).to(device)
    other = torchmetrics.classification.MulticlassF1Score(5).to(device)
    two = torchmetrics.Accuracy(task="binary").to(device)
    quiet = torchmetrics.Accuracy(task="binary", validate_args=False).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
{STEPS}
        scores = net(x).detach()
        several.update(scores, y)
        several.update(scores.argmax(1), y)  # !XLA109
        labels = scores.max(1)[1]
        other(labels, y)  # !XLA109
        other(scores, y)
        two.update(scores[:, 0], y)  # !XLA109
        quiet.update(scores[:, 0], y)
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_what_libraries_read_of_their_own(program):
    program = program.replace("HEAD\n", HEAD)
    assert {one for one in found(program) if one[1] == "XLA109"} == {*marks(program)}


WATCHED = """\
import torch
import torch_xla
import wandb
EVERY = 1
def fit(net, batches, sgd):
    device = torch_xla.device()
    net.to(device)
    {watch}
    for x, y in batches:
        torch.nn.functional.mse_loss(net(x.to(device)), y.to(device)).backward()
        sgd.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize(
    "watch",
    [
        "wandb.watch(net, log_freq=EVERY)  # !XLA109",
        'wandb.watch(net, log="all", log_freq=10)  # !XLA109',
        'wandb.watch(net, None, "parameters", 1)  # !XLA109',
        "wandb.watch(net)",
        'wandb.watch(net, log="all")',
        "wandb.watch(net, log_freq=500)",
        "wandb.watch(net, log=None, log_freq=1)",
        "wandb.watch(net, log_freq=len(batches))",
    ],
)
def test_gradients_that_hooks_of_a_logger_read(watch):
    program = WATCHED.format(watch=watch)
    assert {one for one in found(program) if one[1] == "XLA109"} == marks(program)
