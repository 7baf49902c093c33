"""Helpers that a script or a test beside the training tries with tensors of the host.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

TRAIN = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from parts import Folded
from settings import rate
def train(net, batches, adam):
    device = torch_xla.device()
    net.to(device)
    criterion = Folded()
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        loss, parts = criterion(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
        print(parts["near"].item())  # !XLA101
"""
PARTS = """\
import torch
from torch import nn
def near(a, b):
    if torch.isnan(a).any():  # !XLA104
        return torch.tensor(0.0, device=a.device)
    return (a - b).abs().mean()
class Folded(nn.Module):
    def forward(self, a, b):
        parts = {"near": near(a, b), "far": (a * b).mean()}
        return sum(parts.values()), parts
"""
SETTINGS = """\
import torch_xla
rate = 0.1
def where():
    return torch_xla.device()
"""
TRIES = """\
import torch
from parts import Folded, near
from settings import rate
def test_folded():
    out, y = torch.randn(2, 3), torch.randn(2, 3)
    loss, parts = Folded()(out, y)
    print(near(out, y).item(), {name: value.item() for name, value in parts.items()})
"""
#: What stands beside the training, by what tries the helpers.
BESIDE = {
    "nothing": ("", {}),
    "a test function of another file": ("", {"test_parts.py": TRIES}),
    "a test function of the helper": (
        """\
def test():
    print(near(torch.randn(2, 3), torch.randn(2, 3)))
""",
        {},
    ),
    "the helper started by itself": (
        """\
if __name__ == "__main__":
    print(near(torch.randn(2, 3), torch.randn(2, 3)))
""",
        {},
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_helper_that_somebody_tries_on_the_host_is_told(tmp_path, name):
    more, files = BESIDE[name]
    files = {"train.py": TRAIN, "parts.py": PARTS + more, "settings.py": SETTINGS, **files}
    for filename, text in files.items():
        (tmp_path / filename).write_text(text)
    for result in lint_files(sorted(tmp_path.iterdir()), Plan(engine.LintOptions())):
        told = {(item.locations[0].row, item.code) for item in result.result.findings}
        wanted = marks(files[result.filename.rpartition("/")[2]])
        assert {(row, code) for row, code in told if code.startswith("XLA1")} == wanted


def test_helper_that_the_training_itself_gives_both_is_left_alone():
    assert (
        found("""\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
def mean(values):
    return values.mean().item()
def train(net, batches, lengths):
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(batches, device):
        rows = torch.tensor(lengths)
        print(mean(rows))
    print(mean(net(torch.zeros(1, 3, device=device))))
""")
        == []
    )


MASKED = """\
import torch
import torch_xla
from torch.utils.data import DataLoader
def train(net, data, adam):
    device = torch_xla.device()
    net.to(device)
    for batch in DataLoader(data, batch_size=8, drop_last=True):
        x = batch["x"].to(device)
        mask = batch.get("mask")
        %s
        loss = net(x, mask)
        loss.backward()
        adam.step()
        torch_xla.sync()
        if mask is not None:
            print(mask.sum().item())  # !XLA101
"""


@pytest.mark.parametrize(
    "line",
    [
        "if mask is not None:\n            mask = mask.to(device)",
        "mask = mask.to(device) if mask is not None else None",
        "if mask is None:\n            pass\n        else:\n            mask = mask.to(device)",
        "if not (mask is None):\n            mask = mask.to(device)",
    ],
)
def test_what_is_moved_if_it_is_there_is_on_the_device(line):
    program = MASKED % line
    assert {(row, code) for row, code in found(program) if code == "XLA101"} == marks(program)


def test_what_is_moved_in_some_cases_may_be_on_the_host():
    program = MASKED % "if len(data) > 3:\n            mask = mask.to(device)"
    assert "XLA101" not in {code for _, code in found(program)}
