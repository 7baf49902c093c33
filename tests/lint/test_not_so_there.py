"""What holds of a line elsewhere, and not where it stands: other branches, helpers, last batches.

All programs are invented. ``# !XLA208`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

XM = """\
import random
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
STEPS = """\
def train(model, loader, optimizer, training):
    device = torch_xla.device()
    model.to(device)
    for images in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(window(images, training)).mean().backward()
        xm.optimizer_step(optimizer)
"""

PROGRAMS = {
    "XLA208: the same name in the other branch": f"""\
{XM}
def window(x, training):
    side = x.shape[-1]
    if training:
        at = random.randint(0, side - 64)
        shift = torch.arange(64, device=x.device) + float(at)
        return x.index_select(-1, shift.long())
    else:
        at = (side - 64) // 2
        return x[..., at : at + 64]

{STEPS}""",
    "XLA208: the same name once more": f"""\
{XM}
def window(x, training):
    at = random.randint(0, 8)
    print(at)
    at = 4
    return x[..., at : at + 64]

{STEPS}""",
    "XLA208: drawn in one of the ways to it": f"""\
{XM}
def window(x, training):
    at = 16
    if training:
        at = random.randint(0, 32)
    return x[..., at : at + 64]  # !XLA208

{STEPS}""",
    "XLA208: drawn in its own branch": f"""\
{XM}
def window(x, training):
    if training:
        at = random.randint(0, 32)
        return x[..., at : at + 64]  # !XLA208
    at = 16
    return x[..., at : at + 64]

{STEPS}""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


WORDS = """\
import torch

def encoded(texts, length=16):
    lists = [[ord(letter) for letter in text] for text in texts]
    ids = torch.zeros(len(lists), length, dtype=torch.long)
    {fill}
    return ids
"""
FED = f"""\
{XM}
import words

def train(model, loader, optimizer):
    device = torch_xla.device()
    model.to(device)
    for pictures, texts in loader:
        ids = words.encoded(texts).to(device){{mark}}
        optimizer.zero_grad()
        model(pictures.to(device), ids).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
"""


@pytest.mark.parametrize(
    ("fill", "mark"),
    [
        ("for row, one in enumerate(lists):\n        ids[row, : len(one)] = torch.tensor(one)", ""),
        ("ids[:, 0] = 1", "  # !XLA604"),
        ("print(length)", "  # !XLA604"),
    ],
)
def test_what_a_helper_fills_with_content_of_the_host(tmp_path, fill, mark):
    files = {"words.py": WORDS.format(fill=fill), "train.py": FED.format(mark=mark)}
    assert told_in_files(tmp_path, files, {"XLA604"}) == marks_in_files(files)
