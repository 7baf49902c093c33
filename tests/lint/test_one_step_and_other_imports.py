"""What runs in one step alone, and names whose import of torch_xla has failed."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

PROFILED = """
import torch_xla
import torch_xla.core.xla_model as xm


class Teacher:
    def __init__(self, net, optimizer, loader, config):
        self.net, self.optimizer, self.loader, self.config = net, optimizer, loader, config
        self.global_step = 0
        self.profile_step = config.profile_step
        self.moving = 0

    def teach(self):
        for batch in self.loader:
            self.net(batch).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            torch_xla.sync()
            self.global_step += 1
            self.moving = self.global_step
            if {test}:
                xm.wait_device_ops(){mark}
"""


@pytest.mark.parametrize(
    ("test", "mark"),
    [
        ("self.global_step == self.config.profile_step", ""),
        ("self.profile_step == self.global_step", ""),
        ("self.global_step != self.config.profile_step", "  # !XLA114"),
        ("self.global_step == self.moving", "  # !XLA114"),
    ],
)
def test_one_step_of_all(test, mark):
    program = PROFILED.format(test=test, mark=mark)
    told = {(row, code) for row, code in found(program) if code == "XLA114"}
    assert told == marks(program)


WRAPPED = """
try:
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
except ImportError:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    xm = None


def wrapped(net, device):
    if xm:
        return FSDP(net, compute_dtype=None, device_id=device)  # !XLA801
    return FSDP(net, device_id=device, limit_all_gathers=True)
"""


def test_the_import_in_the_place_of_torch_xla_s():
    told = {(row, code) for row, code in found(WRAPPED) if code == "XLA801"}
    assert told == marks(WRAPPED)
