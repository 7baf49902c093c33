"""What happens every so many steps: a decision on a tensor, a checkpoint that a helper saves.

All programs are invented. ``# !XLA113`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
STEP = """\
        adam.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        xm.optimizer_step(adam)
"""
LOOP = f"""\
def train(net, adam, loader, device, path):
    best, kept = float("inf"), None
    for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
{STEP}"""
DECISIONS = {
    "a comparison": """\
        if step % 100 == 0:
            if loss < best:  # !XLA113
                best = loss.detach()
""",
    "a check": """\
        if step % 100 == 0:
            assert torch.isfinite(loss)  # !XLA113
""",
    "one of two": """\
        if (step + 1) % 50 == 0:
            kept = "up" if loss > 1 else "down"  # !XLA113
""",
    "negated": """\
        if step % 100 == 0:
            if not torch.isfinite(loss).all():  # !XLA113
                break
""",
    "by a number, and whether there is one": """\
        if step % 100 == 0:
            if step > 500 and loss is not None:
                kept = loss.detach()
            if x.size(0) < 8:
                break
""",
    "in a step closure": """\
        if step % 100 == 0:
            def look(value):
                if value < 1:
                    print("low")
            xm.add_step_closure(look, args=(loss.detach(),))
""",
}
SAVED = {
    "a helper that is given the state": """\
def keep(state, name):
    torch.save(state, name)  # !XLA721
def main(path):
    net = torch.nn.Linear(3, 3).to(xm.xla_device())
    keep(net.state_dict(), path)
""",
    "a helper that is given a dictionary": """\
def keep(state, best, name):
    torch.save(state, name)  # !XLA721
    if best:
        torch.save(state, name + ".best")  # !XLA721
def main(path):
    net = torch.nn.Linear(3, 3).to(xm.xla_device())
    state = {"epoch": 3, "weights": net.state_dict()}
    keep(state, True, name=path)
""",
    "a method that is given the model": """\
class Keeper:
    def keep(self, net, name):
        torch.save({"net": net.state_dict()}, name)  # !XLA721
def main(path):
    net = torch.nn.Linear(3, 3).to(xm.xla_device())
    Keeper().keep(net, path)
""",
    "what was brought to the host": """\
def keep(state, name):
    torch.save(state, name)
def main(path):
    net = torch.nn.Linear(3, 3).to(xm.xla_device())
    history = [1.0]
    keep(net.cpu().state_dict(), path)
    keep({"history": history}, path)
""",
    "a model of the host": """\
def keep(state, name):
    torch.save(state, name)
def main(path):
    device = xm.xla_device()
    net = torch.nn.Linear(3, 3)
    keep(net.state_dict(), path)
""",
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_every_so_many_steps(name):
    program = HEAD + LOOP + DECISIONS[name]
    told = {(row, code) for row, code in found(program) if code in {"XLA113", "XLA104"}}
    assert told == set(marks(program))


@pytest.mark.parametrize("name", SAVED)
def test_a_checkpoint_that_a_helper_saves(name):
    program = HEAD + SAVED[name]
    told = {(row, code) for row, code in found(program) if code == "XLA721"}
    assert told == set(marks(program))


def test_plain_pytorch_is_left_alone():
    program = (HEAD + LOOP + DECISIONS["a comparison"]).replace(
        "xm.optimizer_step(adam)", "adam.step()"
    )
    program = program.replace("pl.MpDeviceLoader(loader, device)", "loader")
    lines = [line for line in program.splitlines(keepends=True) if "torch_xla" not in line]
    assert codes("".join(lines)) == []


MEANS = "loss, total = mean_of(loss), mean_of(total); counts[0] += total"
SHOWN = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def mean_of(value):
    return xm.all_reduce("sum", value) / 8


def train(net, adam, loader, device):
    total, counts = torch.zeros((), device=device), torch.zeros(2, device=device)
    for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
        adam.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        total = total + loss.detach()
        counts[1] += loss.detach()
        adam.step()
        {end}
        {always}
        if step % 100 == 0:
            {shown}
"""


@pytest.mark.parametrize(
    "shown",
    [
        "mean = xm.all_gather(loss).mean()\nprint(mean.item())",
        "mean = mean_of(total / 100)\nprint(float(mean.cpu()))",
        "mean = torch.sum(counts) / 2\nprint((mean).item())",
        "both = loss * 2\nboth = both + total\nprint(both.item())",
        "norm = torch.stack([loss, total]).norm()\nprint(norm.item())",
    ],
)
@pytest.mark.parametrize(
    ("end", "always", "told"),
    [
        ("torch_xla.sync()", "pass", False),
        ("xm.mark_step()", "loss = loss.detach()", False),
        ("pass", "pass", True),
        ("pass", "loss = loss.detach()", True),
        ("torch_xla.sync()", MEANS, True),
    ],
)
def test_what_is_computed_behind_the_end_is_no_part_of_the_step(shown, end, always, told):
    program = SHOWN.format(end=end, always=always, shown=shown.replace("\n", "\n            "))
    assert ("XLA113" in codes(program)) is told


@pytest.mark.parametrize(
    ("always", "told"), [("mean = mean_of(loss)", True), ("mean = loss.detach()", False)]
)
def test_what_every_step_computes_behind_the_end_is_part_of_the_next(always, told):
    program = SHOWN.format(end="torch_xla.sync()", always=always, shown="print(mean.item())")
    assert ("XLA113" in codes(program)) is told
