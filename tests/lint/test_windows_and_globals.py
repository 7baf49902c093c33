"""Windows of the last losses, and names that a function of the program makes global."""

from __future__ import annotations

import pytest
from rule_helpers import codes, told

WINDOW = """
from collections import deque
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(net, loader, optimizer, every):
    device = torch_xla.device()
    net.to(device)
    recent = {made}
    for at, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = net(x).sub(y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        recent.append({kept})
        {line}
"""
DUE = "if at % every == 0:\n            "


def windowed(made, kept, line):
    text = WINDOW.replace("{made}", made).replace("{kept}", kept).replace("{line}", line)
    return {code for code in codes(text) if code in {"XLA101", "XLA102", "XLA113"}}


@pytest.mark.parametrize(
    "made", ["deque(maxlen=100)", "deque(maxlen=every)", "deque([], every)", "deque()"]
)
@pytest.mark.parametrize(
    "line",
    [
        "print(torch.tensor(recent).mean())",
        "print(sum(recent).item() / len(recent))",
        "print(max(recent).item())",
    ],
)
def test_the_last_losses_of_a_window_are_on_the_device(made, line):
    assert windowed(made, "loss.detach()", line)
    assert windowed(made, "loss.detach()", DUE + line) == {"XLA113"}


@pytest.mark.parametrize("made", ["deque(maxlen=100)", "deque([], every)", "deque([0.0], 8)"])
@pytest.mark.parametrize("kept", ["at", "x.shape[0]", "time.time()"])
def test_a_window_of_numbers_holds_no_tensors(made, kept):
    line = "print(sum(recent) / len(recent), torch.tensor(recent).mean())"
    assert windowed(made, kept, line) == set()


def test_what_a_window_was_filled_with_is_in_it():
    line = "print(recent[0].item())"
    assert windowed("deque(torch.zeros(8, device=device), 8)", "at", line) == {"XLA101"}


GLOBALS = """
import torch
import torch_xla
from accelerate import Accelerator
from torch.utils.data import DataLoader


def evaluate():
    net.eval()
    losses = []
    with torch.no_grad():
        for x, y in val_loader:
            losses.append(net(x).sub(y).pow(2).mean())
    {lines}


def main(data, held_out, net_of):
    {declared}
    accelerator = Accelerator()
    net = net_of()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    val_loader = DataLoader(held_out, 8)
    loader = DataLoader(data, 8, drop_last=True)
    {prepared}
    for x, y in loader:
        loss = net(x).sub(y).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    evaluate()


if __name__ == "__main__":
    from mine.parts import data, held_out, net_of
    main(data, held_out, net_of)
"""
DECLARED = "global accelerator, net, optimizer, loader, val_loader"
TELLS = 'accelerator.log({"val": torch.stack(losses).mean().item()})'
PREPARED = (
    "net, optimizer, loader, val_loader = accelerator.prepare(net, optimizer, loader, val_loader)"
)


def told_of_globals(lines=TELLS, declared=DECLARED, prepared=PREPARED):
    text = GLOBALS.replace("{lines}", lines).replace("{declared}", declared)
    return {code for _, code in told("XLA427", text.replace("{prepared}", prepared))}


def test_a_loader_that_main_makes_global_is_shared_out():
    assert told_of_globals() == {"XLA427"}


@pytest.mark.parametrize(
    ("lines", "declared", "prepared"),
    [
        (
            'accelerator.log({"val": accelerator.gather(torch.stack(losses)).mean().item()})',
            DECLARED,
            PREPARED,
        ),
        # Only the others are prepared: each core sees all of it.
        (
            TELLS,
            DECLARED,
            "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)",
        ),
        # Another name of that function alone.
        (TELLS, "global accelerator, net, optimizer, loader", PREPARED),
    ],
)
def test_other_global_loaders_are_left_alone(lines, declared, prepared):
    assert told_of_globals(lines, declared, prepared) == set()
