"""Conditions beside what runs: a branch for other devices, and what leaves a loop before."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

STEPPED = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Trust(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, {{"lr": lr}})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                norm = p.data.norm()
                if norm == 0:  # !XLA104
                    continue
                p.data.add_(p.grad / norm, alpha=-group["lr"])


def train(net, loader, criterion, device, on_tpu):
    net = net.to(device)
    optimizer = Trust(net.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        if device.type == "xla":
            {step}
        else:
            optimizer.step()


def main(net, loader, criterion, on_tpu):
    device = xm.xla_device()
    train(net, pl.MpDeviceLoader(loader, device), criterion, device, on_tpu)
"""


def test_the_step_that_torch_xla_takes_is_that_of_the_own_optimizer() -> None:
    """``optimizer.step()`` for other devices is not the only thing that runs it."""
    program = STEPPED.format(step="xm.optimizer_step(optimizer)")
    assert {x for x in found(program) if x[1] == "XLA104"} == marks(program)
    assert not rows(STEPPED.format(step="take_step(net)"), "XLA104")


ANOMALY = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(net, loader, optimizer, criterion, steps, debug):
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, xm.xla_device())):
        {before}
        with torch.autograd.detect_anomaly():
            criterion(net(x), y).backward()
        xm.optimizer_step(optimizer)
"""
INSIDE = """if debug:
            torch.autograd.set_detect_anomaly(True)
        else:
            torch.autograd.set_detect_anomaly(False)
        if not debug:
            continue"""


@pytest.mark.parametrize(
    ("before", "told"),
    [("pass", True), ("if step > steps:\n            break", True), (INSIDE, False)],
)
def test_what_leaves_the_loop_before_turns_nothing_on(before: str, told: bool) -> None:
    assert bool(rows(ANOMALY.format(before=before), "XLA106")) is told
