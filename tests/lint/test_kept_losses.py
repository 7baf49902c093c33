"""Losses that a loop keeps, with the history of every step: given back by a step, in lists."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

HEAD = """
from collections import deque

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def step(net, optimizer, x):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def step_and_more(net, optimizer, x):
    out = net(x)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return out.detach(), loss


def quiet_step(net, optimizer, x):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss = loss.detach()
    return loss


class Engine:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.history = {"loss": []}
        self.pairs = []

    def step(self, x):
        loss = self.net(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, loader):
        device = torch_xla.device()
        self.net.to(device)
        for x in pl.MpDeviceLoader(loader, device):
            loss = self.step(x)
            self.history["loss"].append(loss)  # !XLA315
            self.pairs.append((loss, 1))  # !XLA315


def fit(net, critic, loader, optimizer):
    device = torch_xla.device()
    net.to(device)
    critic.to(device)
    losses, pairs, total, history = [], [], 0.0, {"loss": [], "d": []}
    recent = deque(maxlen=50)
    for epoch in range(10):
        part = []
        for x in pl.MpDeviceLoader(loader, device):
            LINES
"""


TWO = "optimizer.step()\npairs.append((d, g))  # !XLA315"


def told(lines):
    text = HEAD.replace("LINES", lines.strip().replace("\n", "\n            "))
    return {item for item in found(text) if item[1] == "XLA315"}, set(marks(text))


@pytest.mark.parametrize(
    "lines",
    [
        "loss = step(net, optimizer, x)\nlosses.append(loss)  # !XLA315",
        "loss = step(net, optimizer, x)\ntotal += loss  # !XLA315",
        "out, loss = step_and_more(net, optimizer, x)\ntotal = total + loss  # !XLA315",
        "_, loss = step_and_more(net, optimizer, x)\nhistory['loss'].append(loss)  # !XLA315",
        "loss = step(net, optimizer, x)\npairs.append({'loss': loss})  # !XLA315",
        "d = critic(x).mean()\nd.backward()\ng = net(x).mean()\ng.backward()\n" + TWO,
        "loss = net(x).mean()\nloss.backward()\nlosses.extend([loss, 1.0])  # !XLA315",
    ],
)
def test_losses_are_kept_with_their_history(lines):
    found_here, wanted = told(lines)
    assert found_here == wanted


@pytest.mark.parametrize(
    "lines",
    [
        "loss = quiet_step(net, optimizer, x)\nlosses.append(loss)",
        "loss = step(net, optimizer, x).detach()\nlosses.append(loss)",
        "loss = step(net, optimizer, x)\nlosses.append(loss.detach())",
        "out, loss = step_and_more(net, optimizer, x)\nlosses.append(out)",
        "loss = step(net, optimizer, x)\nrecent.append(loss)",
        "loss = step(net, optimizer, x)\nlosses.append(loss)\nif len(losses) > 50: losses.pop(0)",
        "rows = []\nloss = step(net, optimizer, x)\nrows.append((loss, x))",
        "loss = step(net, optimizer, x)\nhistory['loss'].append(loss.item())",
        "with torch.no_grad():\n    loss = net(x).mean()\n    losses.append(loss)",
    ],
)
def test_numbers_windows_and_detached_losses_are_left_alone(lines):
    found_here, wanted = told(lines)
    assert found_here == wanted


def test_lists_of_one_epoch_grow_as_well():
    text = HEAD.replace("LINES", "loss = step(net, optimizer, x)\n            part.append(loss)")
    assert len(rows(text, "XLA315")) == 3
