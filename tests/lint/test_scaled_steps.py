"""Steps by a gradient scaler on several cores. ``# !XLA302`` marks what has to be found."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

LEARNER = """
import torch_xla.amp
import torch_xla.core.xla_model as xm


class Learner:
    def __init__(self, net, params, settings):
        self.net = net
        self.settings = settings
        self.scaler = torch_xla.amp.GradScaler()
        self.optimizer = torch_xla.amp.syncfree.SGD(params, lr=0.1)

    def learn(self, images, labels):
        loss = self.net(images, labels)
        if self.settings.mixed:
            self.scaler.scale(loss).backward()
            {before}
            self.scaler.step(self.optimizer){mark}
            self.scaler.update()
        else:
            loss.backward()
            {other}
"""
MARK = "  # !XLA302"


@pytest.mark.parametrize(
    ("before", "other", "mark"),
    [
        ("pass", "xm.optimizer_step(self.optimizer)", MARK),
        ("pass", "xm.optimizer_step(self.optimizer, barrier=True)", ""),  # one core's, maybe
        ("pass", "self.optimizer.step()", ""),
        ("xm.reduce_gradients(self.optimizer)", "xm.optimizer_step(self.optimizer)", ""),
        (
            'xm.all_reduce("sum", xm._fetch_gradients(self.optimizer), scale=0.125)',
            "xm.optimizer_step(self.optimizer)",
            "",
        ),
    ],
)
def test_where_the_other_branch_reduces(before, other, mark):
    program = LEARNER.format(before=before, other=other, mark=mark)
    assert [(row, "XLA302") for row in rows(program, "XLA302")] == sorted(marks(program))


SPAWNED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from {package} import GradScaler


def run(index, net, loader, amp):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = GradScaler()
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = net(x).sum()
        scaler.scale(loss).backward()
        {condition}
            scaler.step(optimizer){mark}
            scaler.update()


torch_xla.launch(run, args=(None, None, True))
"""


@pytest.mark.parametrize(
    ("package", "condition", "mark"),
    [
        ("torch_xla.amp", "if True:", MARK),
        ("torch_xla.amp", "if amp:", MARK),
        ("torch.cuda.amp", "if True:", MARK),
        ("torch.cuda.amp", "if amp:", ""),
        ("torch_xla.amp", "if xm.is_master_ordinal():", ""),
    ],
)
def test_where_nothing_reduces(package, condition, mark):
    program = SPAWNED.format(package=package, condition=condition, mark=mark)
    assert [(row, "XLA302") for row in rows(program, "XLA302")] == sorted(marks(program))


def test_where_a_wrapper_reduces():
    program = SPAWNED.format(package="torch_xla.amp", condition="if True:", mark="")
    wrapped = "net = torch.nn.parallel.DistributedDataParallel(net.to(device))"
    assert rows(program.replace("net = net.to(device)", wrapped), "XLA302") == []
