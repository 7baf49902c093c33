"""Code that never runs is no problem, and says nothing of the code that does.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; what
is written between ``HEAD`` and the end of the step is what differs.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import sys
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def fit(net, adam, batches, ask):
    where = torch_xla.device()
    net.to(where)
    for n, (x, y) in enumerate(pl.MpDeviceLoader(batches, where)):
        adam.zero_grad()
        loss = net(x, y)
        loss.backward()
        xm.optimizer_step(adam)
"""

NEVER = {
    "behind continue": """\
        continue
        print(loss.item())
""",
    "behind break in both branches": """\
        if n > 10:
            break
        else:
            continue
        print(loss.item())
""",
    "if False": """\
        if False:
            print(loss.item())
""",
    "if 0 and a setting": """\
        if 0 and ask.verbose:
            print(loss.item())
""",
    "else of if True": """\
        if True:
            ask.n = n
        else:
            print(loss.item())
""",
    "behind raise": """\
        if ask.strict:
            raise NotImplementedError
            print(loss.item())
""",
    "behind the end of the program": """\
        if ask.stop:
            sys.exit(0)
            print(loss.item())
""",
    "behind a try that always leaves": """\
        try:
            ask.seen(n)
            continue
        except KeyError:
            raise
        print(loss.item())
""",
    "behind a loop without an end": """\
    while True:
        ask.wait()
    for x, y in pl.MpDeviceLoader(batches, where):
        print(net(x, y).item())
""",
    "in while 0": """\
        while 0:
            print(loss.item())
""",
    "behind assert False": """\
        if ask.odd:
            assert False, "not yet"
            print(loss.item())
""",
}

RUNS = {
    "a setting that is off": """\
        if ask.verbose:
            continue
        print(loss.item())  # !XLA101
""",
    "one branch leaves": """\
        if n < 10:
            continue
        elif n == ask.last:
            ask.tell(n)
        print(loss.item())  # !XLA101
""",
    "a loop that a break leaves": """\
        while True:
            if ask.ready():
                break
        print(loss.item())  # !XLA101
""",
    "a break of the loop around": """\
        while True:
            for other in ask.others:
                continue
            else:
                break
        print(loss.item())  # !XLA101
""",
    "a handler that goes on": """\
        try:
            ask.seen(n)
            continue
        except KeyError:
            ask.n = n
        print(loss.item())  # !XLA101
""",
    "if True": """\
        if True:
            print(loss.item())  # !XLA101
""",
    "a module-level setting": """\
        if VERBOSE:
            print(loss.item())  # !XLA101
VERBOSE = False
""",
}


@pytest.mark.parametrize("spelling", NEVER)
def test_nothing_is_told_of_code_that_never_runs(spelling):
    assert found(HEAD + NEVER[spelling]) == found(HEAD)


@pytest.mark.parametrize("spelling", RUNS)
def test_what_may_run_is_told(spelling):
    program = HEAD + RUNS[spelling]
    reads = {(row, code) for row, code in found(program) if code == "XLA101"}
    assert reads == marks(program)


def test_code_that_never_runs_does_not_end_the_step():
    program = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader
def fit(net, data):
    where = torch_xla.device()
    net.to(where)
    adam = torch.optim.Adam(net.parameters())
    for x, y in DataLoader(data, 8, drop_last=True):
        loss = net(x.to(where), y.to(where))
        loss.backward()
        xm.optimizer_step(adam)  # !XLA301
        if False:
            xm.mark_step()
"""
    assert {(row, code) for row, code in found(program) if code == "XLA301"} == marks(program)


def test_a_branch_that_never_runs_joins_nothing():
    program = """\
import torch_xla
import torch_xla.core.xla_model as xm
def fit(net, adam, batches):
    where = torch_xla.device()
    net.to(where)
    for x in batches:
        if True:
            total = net(x.to(where))
        else:
            total = 0.0
        total.backward()
        xm.optimizer_step(adam, barrier=True)
        print(float(total))  # !XLA102
"""
    assert marks(program) <= set(found(program))


ITSELF = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
def pad(images, width=None):
    if width is None:
        size = int(images.sum()){mark}
    else:
        size = 8
    return images * torch.zeros(size, device=images.device)
def train(net, adam, batches, wide, width):
    where = torch_xla.device()
    net.to(where)
    {line}
    for images in pl.MpDeviceLoader(batches, where):
        net(pad(images, width)).sum().backward()
        adam.step()
"""


@pytest.mark.parametrize(
    ("line", "mark"),
    [("width = width if wide else 16", ""), ("width = None", "  # !XLA102")],
)
def test_a_name_may_be_given_what_it_was_before(line, mark):
    source = ITSELF.format(line=line, mark=mark)
    assert {item for item in found(source) if item[1] == "XLA102"} == marks(source)
