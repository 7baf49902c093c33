"""An optimizer made in one file, of a model that a second one moves, in a function of a third."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rule_helpers import told_in_files

if TYPE_CHECKING:
    from pathlib import Path

PLACE = """
def place(net, device="xla"):
    net.to(device)
"""
LOOP = """
import torch_xla.core.xla_model as xm
from placing import place


def run(net, optimizer, loader):
    place(net)
    for x in loader:
        net(x.to(xm.xla_device())).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
"""
MAKE = """
import torch
import torch_xla
from loops import run
from torchvision.models import resnet18


def train(loader, given=None):
    net = {net}
    {before}
    optimizer = torch.optim.AdamW(net.parameters())
    run(net, optimizer, loader)
"""
MAIN = """
from making import train

{lines}
train(loader{given})
"""


@pytest.mark.parametrize(
    ("net", "before", "told"),
    [
        ("resnet18()", "", True),
        ("resnet18()", "net.train()", True),
        ("resnet18()", 'net.to("xla")', False),
        ("given", "", False),
        ("given.net", "", False),
    ],
)
def test_a_function_that_another_file_calls_is_run_from_its_own_models(
    tmp_path: Path, net: str, before: str, told: bool
) -> None:
    """What the caller gives may have been moved there: of that nothing is said."""
    files = {
        "placing.py": PLACE,
        "loops.py": LOOP,
        "making.py": MAKE.format(net=net, before=before),
        "main.py": MAIN.format(lines="loader = []", given=""),
    }
    expected = {("making.py", 11, "XLA305")} if told else set()
    assert told_in_files(tmp_path, files, {"XLA305"}) == expected
