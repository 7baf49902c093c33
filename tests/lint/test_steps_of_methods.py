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


HELD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def fit(net, adam, loader, on_tpu):
    device = xm.xla_device() if on_tpu else torch.device("cpu")
    net.to(device)
    CHOICE
    for number, (rows, wanted) in enumerate(loader):
        adam.zero_grad()
        loss = (net(rows.to(device)) - wanted.to(device)).abs().mean()
        loss.backward()
        adam.step()
        if end is not None:
            end()
        if number % 20 == 0:
            print(loss.item())
"""


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("end = None\n    if on_tpu:\n        end = xm.mark_step", False),
        (
            (
                "end = None\n    if on_tpu:\n        try:\n            end = torch_xla.sync\n"
                "        except AttributeError:\n            end = xm.mark_step"
            ),
            False,
        ),
        ("end = None\n    if on_tpu:\n        end = xm.get_memory_info", True),
        ("end = None\n    if on_tpu:\n        end = net.cleaned", True),
    ],
)
def test_what_ends_the_step_is_held_by_a_name(choice, told):
    program = HELD.replace("CHOICE", choice)
    row = 1 + program.splitlines().index("            print(loss.item())")
    assert rows(program, "XLA113") == ([row] if told else [])
