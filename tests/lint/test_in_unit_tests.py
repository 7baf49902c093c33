"""Loops of unit tests are no training: how long they take, and what they read, is on purpose.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

CASE = """\
import unittest
import torch
import torch_xla
import torch_xla.core.xla_model as xm


class {name}:
    def {method}(self):
        net = torch.nn.Linear(4, 2).to(torch_xla.device())
        adam = torch.optim.Adam(net.parameters())
        for x in BATCHES:
            adam.zero_grad()
            loss = net(x.to(torch_xla.device())).sum()
            loss.backward()
            xm.optimizer_step(adam, barrier=True)
            print(loss.item()){mark}
"""
FUNCTION = """\
{imports}
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def {name}(batches):
    net = torch.nn.Linear(4, 2).to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    for x in batches:
        adam.zero_grad()
        loss = net(x.to(torch_xla.device())).sum()
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
        print(loss.item()){mark}
{call}
"""
MARK = "  # !XLA101"


def reads(program):
    return {row for row, code in found(program) if code == "XLA101"}, {
        row for row, code in marks(program) if code == "XLA101"
    }


@pytest.mark.parametrize(
    ("name", "method", "mark"),
    [
        ("StepTest(unittest.TestCase)", "test_steps", ""),
        ("StepTest(test_utils.XlaTestCase)", "compare", ""),
        ("Stepper", "test_steps", ""),
        ("Stepper", "steps", MARK),
        ("Stepper(torch.nn.Module)", "steps", MARK),
    ],
)
def test_a_class_of_tests(name, method, mark):
    told, wanted = reads(CASE.format(name=name, method=method, mark=mark))
    assert told == wanted


@pytest.mark.parametrize(
    ("imports", "name", "call", "mark"),
    [
        ("import pytest", "test_training", "", ""),
        ("import pytest", "train", "", MARK),
        ("", "test_loop_fn", "", MARK),
        ("import pytest", "test_loop_fn", "test_loop_fn(LOADER)", MARK),
    ],
)
def test_a_function_that_pytest_runs(imports, name, call, mark):
    told, wanted = reads(FUNCTION.format(imports=imports, name=name, call=call, mark=mark))
    assert told == wanted
