"""Loops of their own that programs of Accelerate have: what holds under torch_xla holds there.

All programs are invented. ``# !XLA420`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

ASKED = {"XLA326", "XLA418", "XLA419", "XLA420", "XLA721"}
BEGINS = """
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import nn
def main(rows, tests):
    accelerator = Accelerator()
    if accelerator.distributed_type == DistributedType.XLA:
        accelerator.print("on TPU cores")
    torch.manual_seed(3)
    net = nn.Linear(8, 8)
    adam = torch.optim.AdamW(net.parameters())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)
    rows = torch.utils.data.DataLoader(rows, batch_size=32)
    tests = torch.utils.data.DataLoader(tests, batch_size=32)
    net, adam, rows, tests = accelerator.prepare(net, adam, rows, tests)
"""
WRONG = """
    for epoch in range(10):
        net.train()
        for x, y in rows:
            error = nn.functional.cross_entropy(net(x), y)
            accelerator.backward(error)
            if torch.isnan(error):
                continue  # !XLA420
            adam.step()  # !XLA326
        if accelerator.is_main_process:  # !XLA418
            net.eval()
            with torch.no_grad():
                for x, y in tests:
                    print(nn.functional.cross_entropy(net(x), y).item())
        net.eval()
        worst = 0
        with torch.no_grad():
            for x, y in tests:
                worst += nn.functional.cross_entropy(net(x), y).item()
        plateau.step(worst)  # !XLA419
        if worst > 3:
            break  # !XLA420
        if accelerator.is_main_process:
            torch.save(net.state_dict(), "net.pt")  # !XLA721
            torch.save(accelerator.unwrap_model(net).state_dict(), "bare.pt")  # !XLA721
"""
RIGHT = """
    for epoch in range(10):
        net.train()
        for x, y in rows:
            error = nn.functional.cross_entropy(net(x), y)
            adam.zero_grad()
            accelerator.backward(error)
            if accelerator.gather(error).isnan().any():
                continue
            adam.step()
        net.eval()
        worst = []
        with torch.no_grad():
            for x, y in tests:
                errors = nn.functional.cross_entropy(net(x), y, reduction="none")
                worst.append(accelerator.gather_for_metrics(errors))
        mean = torch.cat(worst).mean()
        plateau.step(mean)
        if mean > 3:
            break
        accelerator.save(accelerator.unwrap_model(net).state_dict(), "net.pt")
        if accelerator.is_main_process:
            bare = accelerator.unwrap_model(net).cpu()
            torch.save(bare.state_dict(), "bare.pt")
"""


@pytest.mark.parametrize("loops", [WRONG, RIGHT])
def test_what_is_told_of_loops_under_accelerate(loops):
    program = f"{BEGINS}{loops}\n\nmain(None, None)\n"
    told = {(row, code) for row, code in found(program) if code in ASKED}
    assert told == marks(program)


def test_without_a_word_of_xla_nothing_is_told():
    program = f"{BEGINS}{WRONG}\n\nmain(None, None)\n"
    program = program.replace("from accelerate.utils import DistributedType\n", "")
    program = program.replace("accelerator.distributed_type == DistributedType.XLA", "True")
    assert codes(program) == []


GATHERED = """
    for epoch in range(3):
        net.train()
        for number, (x, y) in enumerate(rows):
            error = nn.functional.cross_entropy(net(x), y)
            {early}
            accelerator.backward(error)
            adam.step()
            adam.zero_grad()
            {late}
        net.eval()
        with torch.no_grad():
            for x, y in tests:
                guesses = accelerator.gather_for_metrics(net(x).argmax(1))
"""


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("pass", "mean = accelerator.gather(error).mean()  # !XLA423"),
        ("kept = accelerator.gather(error.detach().repeat(32))  # !XLA423", "pass"),
        ("pass", "all_of_them = accelerator.gather_for_metrics(error)  # !XLA423"),
        ("pass", "if number % 50 == 0: print(accelerator.gather(error).mean())"),
        ("pass", "right = accelerator.gather((net(x).argmax(1) == y).sum())"),
        ("pass", "if accelerator.sync_gradients: mean = accelerator.gather(error)"),
        ("pass", "seen = accelerator.gather(error).mean().item()"),  # XLA101 tells it
    ],
)
def test_losses_that_are_gathered_in_each_step(early, late):
    program = BEGINS + GATHERED.format(early=early, late=late)
    assert {one for one in found(program) if one[1] == "XLA423"} == marks(program)
