"""Strategies of Lightning that its XLA accelerator refuses: they run on other devices alone."""

from __future__ import annotations

import pytest
from rule_helpers import codes

PROGRAM = """\
import torch_xla
from lightning.fabric.strategies import Strategy, XLAStrategy
from lightning.fabric.strategies.parallel import ParallelStrategy
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.parallel import DataParallel

{classes}
    def setup_module(self, module):
        return DataParallel(module=module, device_ids=self.parallel_devices)
"""
CLASSES = {
    "class Twice(ParallelStrategy):": False,
    "class OverBoth(DDPStrategy):": False,
    "class Own(Strategy):": False,
    "class First(ParallelStrategy):\n    pass\n\nclass Second(First):": False,
    "class Twice(XLAStrategy):": True,
    "class TwiceXLA(DDPStrategy):": True,
    "class First(XLAStrategy):\n    pass\n\nclass Second(First):": True,
    "class Twice:": True,
}


@pytest.mark.parametrize("classes", CLASSES)
def test_a_strategy_that_is_none_of_xla_s_runs_elsewhere(classes):
    program = PROGRAM.replace("{classes}", classes)
    assert ("XLA709" in codes(program)) is CLASSES[classes]


def test_what_one_of_xla_s_is_built_on_runs_there():
    program = PROGRAM.replace("{classes}", "class Both(ParallelStrategy):")
    built = f"{program}\n\nclass XLABoth(Both):\n    pass\n"
    assert "XLA709" in codes(built)
