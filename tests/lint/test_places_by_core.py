"""Places in tensors by the core's number, which are constants of each core's own graph."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

GATHERS = """
import torch
import torch_xla.core.xla_model as xm


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.count = x.shape[0]
        return xm.all_gather(x)

    @staticmethod
    def backward(ctx, grad):
        whole = {whole}
        return {part}
"""
WHOLE = "xm.all_reduce(xm.REDUCE_SUM, grad)"


@pytest.mark.parametrize(
    "part",
    [
        "whole[xm.get_ordinal()]",
        "whole.select(0, xm.get_ordinal())",
        "whole.narrow(0, xm.get_ordinal() * ctx.count, ctx.count)",
    ],
)
def test_each_core_takes_its_part_of_another_place(part):
    program = GATHERS.format(whole=WHOLE, part=f"{part}  # !XLA421")
    assert {one for one in found(program) if one[1] == "XLA421"} == set(marks(program))


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (WHOLE, "whole.select(0, 1)"),
        (WHOLE, "whole[0]"),
        (WHOLE, "[whole][xm.get_ordinal() * 0]"),
        (WHOLE, "whole.index_select(0, ctx.own)"),
        ("grad", "whole[xm.get_ordinal()]"),
    ],
)
def test_equal_places_and_data_are_the_same_program(whole, part):
    assert "XLA421" not in codes(GATHERS.format(whole=whole, part=part))


STEPS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def _mp_fn(index, model, loader, optimizer):
    device = torch_xla.device()
    model.to(device)
    rank = xr.global_ordinal()
    for images in pl.MpDeviceLoader(loader, device):
        features = xm.all_gather(model(images))
        own = {own}
        (features - own).sum().backward()
        xm.optimizer_step(optimizer)


def main(load):
    torch_xla.launch(_mp_fn, args=load())
"""


def test_a_part_of_what_was_gathered_in_the_step():
    program = STEPS.format(own="features[rank * 8 : (rank + 1) * 8]  # !XLA421")
    assert {one for one in found(program) if one[1] == "XLA421"} == set(marks(program))


def test_the_part_that_the_core_has_itself():
    assert "XLA421" not in codes(STEPS.format(own="model(images)"))
