"""What a module does in evaluation mode alone, and the loops that run it.

All programs are invented.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torchvision import models


class Inner(torch.nn.Module):
    def sizes(self, x):
        return x.sum(-1).cpu().tolist()

    def forward(self, x, full=True):
        if {test}:
            x = {then}
        else:
            x = {other}
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


def measure(net, batches):
    net.eval()
    with torch.no_grad():
        for x in batches:
            {measured}


def train(loader, held_out):
    device = torch_xla.device()
    net = Net().to(device)
    {teacher}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        net.train()
        for x in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(optimizer)
        measure(net, pl.MpDeviceLoader(held_out, device))
"""


READS, WITHOUT = "x * len(self.sizes(x))", "x * 2"


def _messages(test, then=READS, other=WITHOUT, teacher="pass", measured="net(x)"):
    program = PROGRAM.format(test=test, then=then, other=other, teacher=teacher, measured=measured)
    found = engine.lint(Source("train.py", program), engine.LintOptions()).findings
    return [one.message for one in found if one.code == "XLA101"]


@pytest.mark.parametrize(
    ("test", "then", "other"),
    [
        ("not self.training", READS, WITHOUT),
        ("not self.training and full", READS, WITHOUT),
        ("not (self.training or full is None)", READS, WITHOUT),
        ("self.training or full is None", WITHOUT, READS),
        ("self.training", WITHOUT, READS),
    ],
)
def test_evaluation_alone(test, then, other):
    [message] = _messages(test, then, other)
    assert "for every evaluation batch" in message
    assert _messages(test, then, other, measured="print(x.shape)") == []


@pytest.mark.parametrize(
    ("test", "teacher"),
    [
        ("self.training", "pass"),
        ("not self.training or full", "pass"),
        ("not full", "pass"),
        ("not self.training", "teacher = Net().to(device)\n    teacher.eval()"),
        ("not self.training", "loader.model.eval()"),
    ],
)
def test_training_too(test, teacher):
    [message] = _messages(test, teacher=teacher)
    assert "on every step" in message


def test_a_model_of_a_library_that_stays_in_evaluation_mode():
    teacher = "teacher = models.resnet50().to(device)\n    teacher.eval()"
    [message] = _messages("not self.training", teacher=teacher)
    assert "for every evaluation batch" in message


def test_an_own_flag_of_what_is_no_module():
    program = """
        import torch
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl

        class Trainer:
            def __init__(self):
                self.training = False

            def note(self, loss):
                if not self.training:
                    print(loss.item())

            def fit(self, net, loader, optimizer):
                net = net.to(torch_xla.device())
                for x in pl.MpDeviceLoader(loader, torch_xla.device()):
                    optimizer.zero_grad()
                    loss = net(x).sum()
                    loss.backward()
                    optimizer.step()
                    self.note(loss)
    """
    assert "XLA101" in codes(program)
