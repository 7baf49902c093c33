"""Steps whose errors are caught in the loop: ``# !XLA420`` marks what is told.

All programs are invented; of a program without a mark nothing of the code is told.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

PROGRAM = """
import os
import sys
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def take(net, x, optimizer):
    loss = net(x).sum()
    loss.backward()
    xm.optimizer_step(optimizer)
    return loss


def give_up(reason):
    raise SystemExit(str(reason))


def run(index, net, loader):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(10):
        for x in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            try:
                {tried}
            except{caught}:{mark}
                {handler}


torch_xla.launch(run, args=(None, None))
"""
WHOLE = "loss = net(x).sum(); loss.backward(); xm.optimizer_step(optimizer)"
PLAIN = "net(x).sum().backward(); xm.reduce_gradients(optimizer); optimizer.step()"
MARK = "  # !XLA420"
CORES = "run, args=(None, None)"


def _program(caught, handler, tried=WHOLE, mark=""):
    space = "\n                "
    return PROGRAM.format(
        tried=tried.replace("; ", space),
        caught=caught and f" {caught}",
        handler=handler.replace("; ", space),
        mark=mark,
    )


def _told(program):
    return [(row, "XLA420") for row in rows(program, "XLA420")]


@pytest.mark.parametrize(
    ("caught", "handler", "tried"),
    [
        ("Exception as error", "print(error); continue", WHOLE),
        ("", "pass", WHOLE),
        ("RuntimeError as error", "xm.master_print(error); optimizer.zero_grad()", WHOLE),
        ("(ValueError, RuntimeError)", "continue", WHOLE),
        ("BaseException", "net.zero_grad()", "take(net, x, optimizer)"),
        ("Exception", "continue", PLAIN),
    ],
)
def test_a_core_that_goes_on(caught, handler, tried):
    program = _program(caught, handler, tried, mark=MARK)
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize(
    ("caught", "handler", "tried"),
    [
        ("Exception as error", "print(error); raise", WHOLE),
        ("Exception", "break", WHOLE),
        ("Exception", "return", WHOLE),
        ("Exception", "sys.exit(1)", WHOLE),
        ("Exception as error", "give_up(error)", WHOLE),
        ("Exception", "print(epoch); os._exit(1)", WHOLE),
        ("StopIteration", "continue", WHOLE),
        ("Exception", "xm.optimizer_step(optimizer)", WHOLE),
        ("Exception", "continue", "print(x.shape)"),
        ("Exception", "continue", "xm.rendezvous('step')"),
    ],
)
def test_a_core_that_does_not_go_on_or_missed_nothing(caught, handler, tried):
    assert _told(_program(caught, handler, tried)) == []


@pytest.mark.parametrize(("caught", "marked"), [("Exception", "except Exception"), ("", "except")])
def test_the_clause_is_marked_and_not_its_lines(caught, marked):
    text = _program(caught, "print(x); continue")
    found = engine.lint(Source("train.py", text), engine.LintOptions()).findings
    [place] = [one.locations[0] for one in found if one.code == "XLA420"]
    assert place.end_row == place.row
    assert text.splitlines()[place.row - 1][place.column - 1 : place.end_column - 1] == marked


def test_one_core_alone():
    program = _program("Exception", "continue")
    assert _told(program.replace(f"torch_xla.launch({CORES})", "run(0, None, None)")) == []


AROUND = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def epoch_of(net, optimizer, batches):
    for x in batches:
        optimizer.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(optimizer)


def run(index, net, loader):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(10):
        try:
            epoch_of(net, optimizer, pl.MpDeviceLoader(loader, device))
        except Exception as error:{mark}
            print(error)
            {left}


torch_xla.launch(run, args=(None, None))
"""


@pytest.mark.parametrize(("left", "mark"), [("continue", MARK), ("raise", ""), ("break", "")])
def test_an_epoch_that_is_caught(left, mark):
    program = AROUND.format(left=left, mark=mark)
    assert _told(program) == sorted(marks(program))
