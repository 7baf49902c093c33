"""Stopwatches of a program that time what is only queued (XLA112).

All programs are invented. ``# !XLA112`` marks a line on which the rule has to find something; no
other line may have such a finding.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks

HEAD = """\
import time
from contextlib import contextmanager
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
FIT = """\
def fit(batches, log):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    watch = Watch()
    for x, y in pl.MpDeviceLoader(batches, device):
"""
STEP = """\
sgd.zero_grad()
loss = F.mse_loss(net(x), y)
loss.backward()
xm.optimizer_step(sgd)
"""
CONTEXT = """\
class Watch:
    def __enter__(self):
        self.begun = time.perf_counter()
        return self
    def __exit__(self, *problem):
        {wait}
        self.seconds = time.perf_counter() - self.begun  {mark}
"""
GENERATOR = """\
@contextmanager
def stopwatch(name):
    begun = time.time()
    yield
    {wait}
    print(name, time.time() - begun)  {mark}
Watch = object
"""
TICKS = """\
class Watch:
    def __init__(self):
        self.all = []
    def tic(self):
        self.begun = time.monotonic()
    def toc(self):
        {wait}
        self.all.append(time.monotonic() - self.begun)  {mark}
"""
USES = {
    CONTEXT: "with Watch() as one:\n{inside}log(one.seconds)\n",
    GENERATOR: "with stopwatch('step'):\n{inside}",
    TICKS: "watch.tic()\n{outside}watch.toc()\n",
}


def check(watch: str, work: str, *, wait: str = "pass", mark: str = "") -> None:
    use = USES[watch].format(inside=textwrap.indent(work, "    "), outside=work)
    source = HEAD + watch.format(wait=wait, mark=mark) + FIT + textwrap.indent(use, " " * 8)
    assert {one for one in found(source) if one[1] == "XLA112"} == marks(source)


@pytest.mark.parametrize("watch", USES)
def test_a_stopwatch_around_a_step_times_how_fast_python_traces(watch: str):
    check(watch, STEP, mark="# !XLA112")


@pytest.mark.parametrize("watch", USES)
@pytest.mark.parametrize(
    "wait", ["torch_xla.sync(wait=True)", "xm.wait_device_ops()", "xm.mark_step(wait=True)"]
)
def test_a_stopwatch_that_waits_itself(watch: str, wait: str):
    check(watch, STEP, wait=wait)


@pytest.mark.parametrize("watch", USES)
@pytest.mark.parametrize(
    "work",
    [
        f"{STEP}log(loss.item())\n",
        f"{STEP}xm.wait_device_ops()\n",
        "x = x.float()\n",
        "log(len(x))\n",
    ],
)
def test_what_waits_or_does_nothing_on_the_device(watch: str, work: str):
    check(watch, work)


def test_a_stopwatch_that_is_stopped_elsewhere_times_no_step():
    source = HEAD + TICKS.format(wait="pass", mark="")
    source += FIT + textwrap.indent(f"{STEP}watch.toc()\nwatch.tic()\n", " " * 8)
    assert {one for one in found(source) if one[1] == "XLA112"} == set()
