"""Gradients that a helper of another file clips before the step reduces them (XLA303)."""

from __future__ import annotations

import pytest
from rule_helpers import told_in_files

HELPERS = """\
import torch
import torch_xla.core.xla_model as xm


def bound(net, adam, most=1.0):
{lines}
"""
TRAIN = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

from helpers import bound


def run(index, net, batches):
    net = net.to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    for x in batches:
        net(x).sum().backward()
        {clip}
        {step}
        adam.zero_grad()


if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.nn.Linear(8, 8), torch.randn(3, 2, 8)))
"""
CLIPS = "torch.nn.utils.clip_grad_norm_(net.parameters(), most)"
STEP = "xm.optimizer_step(adam, barrier=True)"


@pytest.mark.parametrize(
    ("lines", "step", "told"),
    [
        ([f"return {CLIPS}"], STEP, True),
        (["if most > 0:", f"    {CLIPS}"], STEP, True),
        (["xm.reduce_gradients(adam)", f"return {CLIPS}"], "adam.step()", False),
        (["xm.reduce_gradients(adam)", f"return {CLIPS}"], STEP, False),
        ([CLIPS, "xm.optimizer_step(adam)"], "xm.mark_step()", False),
        (["if torch.cuda.is_available():", f"    {CLIPS}"], STEP, False),
        (["torch.nn.utils.clip_grad_value_(net.parameters(), most)"], STEP, False),
    ],
)
def test_a_helper_clips(lines, step, told, tmp_path):
    helpers = HELPERS.format(lines="\n".join(f"    {line}" for line in lines))
    files = {"helpers.py": helpers, "train.py": TRAIN.format(clip="bound(net, adam)", step=step)}
    found = {one for one in told_in_files(tmp_path, files, {"XLA303"}) if one[0] == "train.py"}
    assert found == ({("train.py", 13, "XLA303")} if told else set())
