"""Noise and labels that a step makes on the host and uploads (XLA604, XLA603).

All programs are invented. ``# !XLA604`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks

HEAD = """\
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.autograd import Variable
Tensor = torch.FloatTensor
rng = np.random.default_rng(0)
def fit(batches, real):
    device = torch_xla.device()
    net = nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(batches, device):
"""
STEP = """\
sgd.zero_grad()
loss = (net(x) - more).mean()
loss.backward()
xm.optimizer_step(sgd)
"""


def check(lines: str, *, step: str = STEP) -> None:
    source = HEAD + textwrap.indent(f"{lines}\n{step}", " " * 8)
    told = {(row, code) for row, code in found(source) if code in {"XLA603", "XLA604"}}
    assert told == marks(source)


@pytest.mark.parametrize(
    "made",
    [
        "Variable(Tensor(x.size(0), 1).fill_(1.0), requires_grad=False)",
        "torch.FloatTensor(x.shape[0], 8).normal_(0, 1)",
        "torch.Tensor(8).uniform_(-1, 1)",
        "Variable(Tensor(np.random.normal(0, 1, (x.shape[0], 8))))",
        "torch.from_numpy(np.random.randn(8, 8).astype('float32'))",
        "torch.from_numpy(rng.standard_normal((8, 8)))",
        "torch.tensor(np.random.uniform(size=8)).float()",
        "torch.LongTensor(np.random.randint(0, 10, 8))",
    ],
)
def test_noise_and_labels_that_the_device_can_make(made: str):
    check(f"more = {made}.to(device)  # !XLA604")
    check(f"made = {made}\nmore = made.to(device)  # !XLA604")


def test_an_array_that_is_drawn_for_a_device():
    check("more = torch.tensor(np.random.rand(8, 8), device=device)  # !XLA604")


@pytest.mark.parametrize(
    "lines",
    [
        "more = torch.tensor(np.random.beta(1, 1)).to(device)",  # one number: nothing to gain
        "more = torch.tensor(np.random.rand()).to(device)",
        "more = torch.FloatTensor(8, 8).fill_(next(real)).to(device)",  # may change
        "more = torch.FloatTensor(8, 8).normal_()",  # stays on the host
        "more = torch.empty(8, 8, device=device).normal_()",
        (
            "if len(real) % 100 == 0:\n    real = torch.from_numpy(rng.random((8, 8))).to(device)\n"
            "more = x"
        ),
    ],
)
def test_what_is_left_alone(lines: str):
    check(lines)


def test_arrays_of_data_are_told_once_beside_noise():
    check(
        "more = torch.from_numpy(np.random.randn(8, 8)).to(device)  # !XLA604\n"
        "seen = torch.from_numpy(np.stack([real[0], real[1]])).to(device)  # !XLA603\n"
        "more = more + seen"
    )
