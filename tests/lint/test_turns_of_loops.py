"""What a loop goes over: through generators that hand on, and with ``next`` in a ``while``."""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import codes

PROGRAM = """
import itertools
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader

{helpers}

def train(index, rows):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    host = DataLoader(rows, batch_size=8, shuffle=True, num_workers=4)
    loader = pl.MpDeviceLoader(host, device)
    for epoch in range(3):
{loop}

if __name__ == "__main__":
    xmp.spawn(train, args=(torch.load("rows.pt"),))
"""
STEP = """
sgd.zero_grad()
loss = net(x).sum()
loss.backward()
xm.optimizer_step(sgd, barrier=True)
"""
PLAIN = "for x in loader:" + textwrap.indent(STEP, " " * 4)
EACH = "def each(loader):\n    for batch in loader:\n        yield batch\n"
SPELLINGS = {
    "a generator": (EACH, PLAIN.replace("in loader", "in each(loader)")),
    "a generator of a generator": (EACH, PLAIN.replace("in loader", "in each(each(loader))")),
    "yield from": (
        "def each(loader):\n    yield from loader\n",
        PLAIN.replace("in loader", "in each(loader)"),
    ),
    "a counted generator": (
        EACH.replace("batch in loader", "n, batch in enumerate(loader)"),
        PLAIN.replace("in loader", "in each(loader)"),
    ),
    "within enumerate": (EACH, PLAIN.replace("x in loader", "n, x in enumerate(each(loader))")),
    "a closure": (
        "",
        "def each():\n    for batch in loader:\n        yield batch\n"
        + PLAIN.replace("in loader", "in each()"),
    ),
    "next": (
        "",
        "turns = iter(loader)\nwhile True:\n    try:\n        x = next(turns)\n"
        "    except StopIteration:\n        break" + textwrap.indent(STEP, " " * 4),
    ),
    "next of a generator": (
        EACH,
        "turns = iter(each(loader))\nwhile True:\n    try:\n        x = next(turns)\n"
        "    except StopIteration:\n        break" + textwrap.indent(STEP, " " * 4),
    ),
}


def program(helpers, loop):
    inside = textwrap.indent(textwrap.dedent(loop).strip("\n"), " " * 8)
    return PROGRAM.replace("{helpers}", helpers).replace("{loop}", inside)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_loader_is_known_behind_it(spelling):
    told = sorted(codes(program("", PLAIN)))
    assert {"XLA203", "XLA304", "XLA402"} <= set(told)
    assert sorted(codes(program(*SPELLINGS[spelling]))) == told


@pytest.mark.parametrize("spelling", ["a generator", "a closure", "next", "next of a generator"])
def test_rows_that_no_loader_gives_are_no_batches(spelling):
    helpers, loop = SPELLINGS[spelling]
    text = program(helpers, loop).replace(
        "loader = pl.MpDeviceLoader(host, device)", "loader = [row.to(device) for row in rows]"
    )
    lines = [line for line in text.splitlines() if "host = " not in line]
    assert not {"XLA203", "XLA304", "XLA402"} & set(codes("\n".join(lines)))
