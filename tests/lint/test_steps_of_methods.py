"""What the method that takes a step reads, where the loop around it ends graphs as well."""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import rows

PROGRAM = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Fitter:
    def __init__(self, net, adam, device):
        self.net, self.adam, self.device = net.to(device), adam, device

    def advance(self, rows, wanted, number):
        self.adam.zero_grad()
        loss = (self.net(rows) - wanted).abs().mean()
        BACKWARD
        xm.reduce_gradients(self.adam)
        self.adam.step()
        END
        if number % 20 == 0:
            print(loss.mean().item())

    def fit(self, loader):
        for number, (rows, wanted) in enumerate(pl.MpDeviceLoader(loader, self.device)):
            self.advance(rows, wanted, number)
            if number % 500 == 0:
                xm.rendezvous("saved")
                xm.mark_step()
"""


@pytest.mark.parametrize(
    ("backward", "end", "told"),
    [
        ("loss.backward()", "pass", True),
        ("self.scale.backward(loss)", "pass", True),
        ("loss.backward()", "xm.mark_step()", False),
        ("pass", "pass", False),
        ("(loss * 2).backward()", "pass", False),
    ],
    ids=["pending", "a function", "ended within", "no pass", "of something else"],
)
def test_the_loop_saves_behind_the_step(backward, end, told):
    program = PROGRAM.replace("BACKWARD", backward).replace("END", end)
    assert rows(program, "XLA113") == ([18] if told else [])
