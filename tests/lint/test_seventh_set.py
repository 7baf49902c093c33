"""What the seventh set of public programs showed, written anew in several spellings.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

STEP = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""

#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA101 XLA113: the last step of an epoch, by name": """\
def fit(net, adam, batches, crit, every, note):
    where = torch_xla.device()
    net.to(where)
    final = len(batches) - 1
    for n, (x, y) in enumerate(pl.MpDeviceLoader(batches, where)):
        at_end = n == final
        adam.zero_grad()
        loss = crit(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        xm.mark_step()
        if at_end or n % every == 0:
            note(loss.item())
        if n != final:
            note(loss.item())  # !XLA101
""",
    "XLA721: what is saved where no XLA device is": """\
import settings
def keep(net, path):
    where = torch_xla.device()
    net = net.to(where)
    if settings.USE_TPU:
        xm.save(net.state_dict(), path)
    else:
        torch.save(net.state_dict(), path)
    torch.save(net.state_dict(), path)  # !XLA721
""",
    "XLA721: moved back by a name": """\
def keep(net, path):
    where = torch_xla.device()
    net = net.to(where)
    torch.save(net.state_dict(), path)  # !XLA721
    where = torch.device("cpu")
    net = net.to(where)
    torch.save(net.state_dict(), path)
""",
    "XLA721: moved to the device by a name": """\
def keep(net, path):
    where = torch.device("cpu")
    net = net.to(where)
    where = torch_xla.device()
    net = net.to(where)
    torch.save(net.state_dict(), path)  # !XLA721
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_seventh_set_showed(name):
    program = STEP + PROGRAMS[name]
    wanted = name.partition(":")[0].split()
    assert {(row, code) for row, code in found(program) if code in wanted} == marks(program)
