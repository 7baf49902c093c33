"""Lists that are as long as values on the device say, and tensors of these (XLA201)."""

from __future__ import annotations

import pytest
from rule_helpers import codes

PROGRAM = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(net, loader, optimizer):
    device = torch_xla.device()
    net.to(device)
    for x, y, words in pl.MpDeviceLoader(loader, device):
        hidden = net(x)
        {lines}
        loss = part.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
FILLED = """kept = []
for at, label in enumerate(y):
    if {test}:
        {then}
"""
APPENDED = FILLED.replace("{then}", "kept.append(at)")
EACH = "kept = []\nfor one in hidden:\n"
EITHER = """\
    if one.sum() > 0:
        kept.append(one)
    else:
        kept.append(-one)
"""
SKIPPED = FILLED.replace("{then}", "continue\n    kept.append(at)")


def told(lines):
    text = PROGRAM.replace("{lines}", lines.replace("\n", "\n        "))
    return "XLA201" in codes(text)


@pytest.mark.parametrize("test", ["label > 0", "label != 3 and at < 5", "not y[at]"])
@pytest.mark.parametrize("filled", [APPENDED, SKIPPED])
@pytest.mark.parametrize(
    "used",
    [
        "part = hidden * torch.tensor(kept, device=device).sum()",
        "part = hidden * torch.tensor([kept], device=device).sum()",
        "part = hidden[kept]",
        "doubled = [2 * at for at in kept]\npart = hidden[doubled]",
    ],
)
def test_what_a_loop_keeps_by_values_of_the_device(test, filled, used):
    assert told(filled.replace("{test}", test) + used)


@pytest.mark.parametrize(
    "lines",
    [
        "part = torch.stack([one for one in hidden if one.sum() > 0])",
        "kept = [one for one in hidden if one.sum() > 0]\npart = torch.cat(kept)",
        "kept = [at for at, one in enumerate(y) if one > 0]\npart = hidden[kept]",
    ],
)
def test_what_a_comprehension_keeps(lines):
    assert told(lines)


@pytest.mark.parametrize(
    "lines",
    [
        # As many as there are.
        "part = torch.stack([one for one in hidden])",
        EACH + "    kept.append(one if one.sum() > 0 else -one)\npart = torch.stack(kept)",
        EACH + EITHER + "part = torch.stack(kept)",
        # The condition is around the whole loop, or asks for something else.
        "kept = [hidden]\nif y.sum() > 0:\n    kept = [*hidden]\npart = torch.stack(kept)",
        APPENDED.replace("{test}", "at < 3") + "part = hidden[kept]",
        APPENDED.replace("{test}", "label is not None") + "part = hidden[kept]",
        APPENDED.replace("{test}", 'words[at] == "stop"') + "part = hidden[kept]",
        # Nobody makes a tensor of it on the device.
        APPENDED.replace("{test}", "label > 0") + "part = hidden * len(kept)",
        APPENDED.replace("{test}", "label > 0") + "print(torch.tensor(kept))\npart = hidden",
    ],
)
def test_lists_of_one_length_are_left_alone(lines):
    assert not told(lines)
