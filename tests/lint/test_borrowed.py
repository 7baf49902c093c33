"""What a loop runs of a file that is read, and not linted: told at the loop's call."""

from __future__ import annotations

import pytest

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

LOOP = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

from tools import Gauge, penalty


def fit(net, batches, opt):
    device = torch_xla.device()
    net.to(device)
    gauge = Gauge()
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        loss = penalty(net(x), y)
        loss.backward()
        opt.step()
        gauge.add(loss, step)
"""

#: The other file, and what is told at which row of the loop's.
TOOLS = {
    "a gauge that reads": (
        """\
class Gauge:
    def __init__(self):
        self.sum = 0.0
    def add(self, value, step):
        self.sum += value.item()
def penalty(a, b):
    return ((a - b) ** 2).mean()
""",
        {(16, "XLA101")},
    ),
    "a read two calls deeper": (
        """\
class Gauge:
    def __init__(self):
        self.sum = 0.0
    def _keep(self, number):
        self.sum += float(number)
    def add(self, value, step):
        self._keep(value)
def penalty(a, b):
    return ((a - b) ** 2).mean()
""",
        {(16, "XLA102")},
    ),
    "a loss with rows that depend on the data": (
        """\
class Gauge:
    def add(self, value, step):
        self.last = value.detach()
def penalty(a, b):
    far = (a - b).abs()
    far = far[far > 0.5]
    return far.mean()
""",
        {(13, "XLA202")},
    ),
    "once in a while": (
        """\
class Gauge:
    def add(self, value, step):
        if step % 100 == 0:
            print(step, value.item())
def penalty(a, b):
    return ((a - b) ** 2).mean()
""",
        set(),
    ),
    "never called by the loop": (
        """\
class Gauge:
    def add(self, value, step):
        self.last = value.detach()
    def show(self):
        print(self.last.item())
def penalty(a, b):
    return ((a - b) ** 2).mean()
""",
        set(),
    ),
}


def lint(tools, *, wanted):
    options = engine.LintOptions()
    loop = Source("loop.py", LOOP)
    members = [
        engine.Member(loop, options, {"tools": "tools.py"}),
        engine.Member(Source("tools.py", tools), options, wanted=wanted),
    ]
    results = engine.lint_together(members)
    assert all(result.failures == () for result in results)
    return [{(item.locations[0].row, item.code) for item in result.findings} for result in results]


@pytest.mark.parametrize("name", TOOLS)
def test_it_is_told_at_the_call(name):
    tools, expected = TOOLS[name]
    assert lint(tools, wanted=False) == [expected, set()]


@pytest.mark.parametrize("name", TOOLS)
def test_it_is_told_once_where_both_are_linted(name):
    tools, expected = TOOLS[name]
    here, there = lint(tools, wanted=True)
    assert here == set()
    assert {code for _, code in there} == {code for _, code in expected}


def test_the_message_names_the_call_and_the_line_in_the_other_file():
    tools, _ = TOOLS["a gauge that reads"]
    options = engine.LintOptions()
    [result, _] = engine.lint_together(
        [
            engine.Member(Source("loop.py", LOOP), options, {"tools": "tools.py"}),
            engine.Member(Source("tools.py", tools), options, wanted=False),
        ]
    )
    [finding] = result.findings
    assert finding.message.startswith("in add(), ")
    assert finding.fix is None
    assert [(place.filename, place.row) for place in finding.related] == [
        ("loop.py", 12),
        ("tools.py", 5),
    ]
