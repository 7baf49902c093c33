"""Python's dice and counters that decide what a step computes, and how much of it.

All programs are invented. ``# !XLA207`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marked, marks, rows

CODES = {"XLA205", "XLA207", "XLA208"}
HEAD = """\
import math
import random
import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
FIT = """\
def fit(batches, total):
    device = torch_xla.device()
    net = {net}.to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
{before}
        errors = F.mse_loss(net(x), y, reduction="none").flatten()
        loss = {loss}
        sgd.zero_grad()
        loss.backward()
        xm.optimizer_step(sgd)
"""
STACK = """\
class Stack(torch.nn.Module):
    def __init__(self, layerdrop=0.0, config=None):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        {kept}
    def forward(self, x):
{body}
        return x
"""


def told(source: str) -> set[tuple[int, str]]:
    return {(row, code) for row, code in found(source) if code in CODES}


def fit(net: str = "torch.nn.Linear(8, 8)", before: str = "        pass", loss: str = "") -> str:
    return FIT.format(net=net, before=before, loss=loss or "errors.mean()")


def stack(body: str, kept: str = "pass") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return HEAD + STACK.format(kept=kept, body=lines) + fit("Stack()")


BRANCHES = [
    (
        "for layer in self.layers:\n"
        "    if self.training and random.random() < 0.2:  # !XLA207\n"
        "        continue\n"
        "    x = layer(x)"
    ),
    (
        "for layer in self.layers:\n"
        "    chance = random.uniform(0, 1)\n"
        "    if self.training and chance < 0.2:  # !XLA207\n"
        "        hidden = x\n"
        "    else:\n"
        "        hidden = layer(x)\n"
        "    x = hidden"
    ),
    (
        "for layer in self.layers:\n"
        "    if np.random.rand() > 0.9:  # !XLA207\n"
        "        break\n"
        "    x = layer(x)"
    ),
    "if np.random.binomial(1, 0.5):  # !XLA207\n    return x\nx = self.first(x)",
    "skip = np.random.binomial(1, 0.5)\nif skip:  # !XLA207\n    return x\nx = self.first(x)",
    "while random.random() < 0.5:  # !XLA207\n    x = self.first(x)",
    "for _ in range(random.randint(1, 4)):  # !XLA207\n    x = self.first(x)",
    "rounds = np.random.randint(1, 4)\nfor _ in range(rounds):  # !XLA207\n    x = self.first(x)",
]


@pytest.mark.parametrize("body", BRANCHES)
def test_layers_that_pythons_dice_leave_out(body: str):
    source = stack(body)
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    "body",
    [
        "for layer in self.layers:\n    if self.skips:\n        continue\n    x = layer(x)",
        "for _ in range(4):\n    x = self.first(x)",
        "if random.random() < 0.5:\n    self.seen = True\nx = self.first(x)",
        "if random.random() < 0.01:\n    raise RuntimeError('chaos')\nx = self.first(x)",
    ],
)
def test_what_is_the_same_in_every_step(body: str):
    assert told(stack(body, "self.skips = False")) == set()


@pytest.mark.parametrize(("share", "mark"), [("ARGS.share", "  # !XLA207"), ("0.0", "")])
def test_an_option_that_is_off_by_default_is_there_to_be_turned_on(share: str, mark: str):
    options = (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--share", type=float, default=0.0)\n'
        "ARGS = parser.parse_args()\n"
    )
    body = f"twice = random.random() < {share}\nif twice:{mark}\n    x = self.first(x)\n"
    source = options + stack(body + "x = self.second(x)")
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    ("kept", "mark"),
    [
        ("self.layerdrop = 0.1", "  # !XLA207"),
        ("self.layerdrop = 0.0", ""),
        ("self.layerdrop = config.layerdrop", ""),  # 0 in most configurations
        ("self.layerdrop = layerdrop", ""),
        ("self.ratio = config.ratio", "  # !XLA207"),
    ],
)
def test_a_share_of_layers_is_0_unless_somebody_says_a_number(kept: str, mark: str):
    name = kept.partition(" ")[0]
    body = f"for layer in self.layers:\n    if random.random() < {name}:{mark}\n        continue\n"
    source = stack(body + "    x = layer(x)", kept)
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    "before",
    [
        "        if random.random() < 0.1:\n            continue",  # no step at all
        "        x = x * random.random()",  # an input of the graph
        "        for _ in range(int(4)):\n            x = F.relu(x)",
    ],
)
def test_turns_that_are_left_out_whole_are_no_other_graph(before: str):
    assert told(HEAD + fit(before=before)) == set()


@pytest.mark.parametrize(
    "before",
    [
        "        keep = int(errors.numel() * (1 - 0.5 * step / total))",
        "        keep = round(64 * max(0.1, 1 - step / total))",
        "        part = 1 - step / total\n        keep = math.ceil(64 * part)",
        "        keep = budget(step, total)",
        "        keep = min(64, 8 + step)",
    ],
)
@pytest.mark.parametrize("loss", ["errors.topk(keep).values.mean()", "errors[:keep].mean()"])
def test_a_size_that_follows_the_step(before: str, loss: str):
    helper = "def budget(now, last):\n    return int(64 * now / last)\n"
    source = HEAD + helper + fit(before=before, loss=f"{loss}  # !XLA205")
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    "before",
    [
        "        keep = int(64 * 0.5)",
        "        keep = 8 if step % 2 else 16",
        "        keep = 1 + step % 3",
        "        keep = int(0.7 * total)",
    ],
)
def test_a_size_that_stays_or_comes_again(before: str):
    assert told(HEAD + fit(before=before, loss="errors.topk(keep).values.mean()")) == set()


@pytest.mark.parametrize("loss", ["errors.mean() * (step / total)", "errors.mean() * int(step)"])
def test_factors_are_inputs_of_the_graph(loss: str):
    assert told(HEAD + fit(loss=loss)) == set()


QUEUE = """\
class Keys(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer, self.size = torch.nn.Linear(8, 8), size
        self.register_buffer("queue", torch.randn(8, size))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.register_buffer("steps", torch.zeros(1))
    def forward(self, x):
        keys = self.layer(x)
        {body}
        return keys
"""


def test_a_queue_whose_place_is_a_buffer():
    body = """\
at = int(self.at)
        self.queue[:, at : at + 8] = keys.T  # !XLA205
        at = (at + 8) % self.size
        self.at[0] = at"""
    source = HEAD + QUEUE.format(body=body) + fit("Keys(64)")
    assert told(source) == marks(source)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("self.steps += 1", "if self.steps > 100:  # !XLA104\n            keys = keys * 2"),
        (
            "self.steps = self.steps + 1",
            "if self.steps > 100:  # !XLA104\n            keys = -keys",
        ),
        ("self.steps.add_(1)", "keys = keys * int(self.steps)  # !XLA102"),
        ("self.steps += keys.mean()", "keys = keys * self.steps"),
    ],
)
def test_a_buffer_that_is_changed_in_place_is_on_the_device(change: str, read: str):
    source = HEAD + QUEUE.format(body=f"{change}\n        {read}") + fit("Keys(64)")
    reads = {one for one in found(source) if one[1] in {"XLA102", "XLA104"}}
    assert reads == marks(source)


@pytest.mark.parametrize(
    "body",
    [
        """\
if random.random() < 0.1:
            action = random.randrange(4)
        else:
            action = int(net(seen).argmax())""",
        """\
if random.random() < 0.1:
            seen, done = world.step(random.randrange(4))
            continue
        action = net(seen).argmax().item()""",
    ],
)
def test_an_agent_that_acts_by_chance_or_asks_its_network(body: str):
    source = (
        HEAD
        + f"""\
def play(world, episodes):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 4).to(device)
    seen, done = world.reset().to(device), False
    while not done:
        {body}
        seen, done = world.step(action)
"""
    )
    assert told(source) == set()


PLACES = """
import torch
import torch_xla
from torch.utils.data import DataLoader

def together(rows):
    places, lengths = [], []
    for row in rows:
        places.append((row["ids"] == 7).nonzero()[:, 0].tolist())
        lengths.append(len(row["ids"]))
    return {{
        "x": torch.stack([row["x"] for row in rows]),
        "places": {places},
        "lengths": lengths,
    }}

class Marks:
    def __init__(self, model):
        self.places = None
        model.layer.register_forward_hook(self.add)
    def use(self, places):
        self.places = places
    def add(self, module, given, output):
        for row in range(output.shape[0]):
            for place in self.places[row]:
                output[row, place] = output[row, place] * 2  # in the hook
        return output

def train(model, rows, optimizer):
    device = torch_xla.device()
    model.to(device)
    marks = Marks(model)
    loader = DataLoader(rows, batch_size=8, drop_last=True, collate_fn=lambda x: together(x))
    for batch in loader:
        x = batch["x"].to(device)
        marks.use(batch["places"])
        hidden = model(x)
        mask = torch.ones_like(hidden)
        {lines}
        (hidden * mask).sum().backward()
        optimizer.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize(
    ("places", "lines", "told"),
    [
        ("places", "pass", {"# in the hook"}),
        (
            "places",
            """for row, n in enumerate(batch["lengths"]):
            mask[row, n:] = 0  # here""",
            {"# in the hook", "# here"},
        ),
        ("places", "mask[0, batch['lengths'][0]] = 0  # here", {"# in the hook", "# here"}),
        ("torch.tensor(places)", "pass", set()),
        (
            "torch.tensor(places)",
            "for row, n in enumerate(batch['lengths']): mask[row] *= n",
            set(),
        ),
        ("torch.tensor(places)", "mask[batch['lengths']] = 0", set()),
        ("torch.tensor(places)", "first = [n for n in batch['lengths']][0]", set()),
    ],
)
def test_places_that_the_batch_brings_in_lists(places, lines, told):
    program = PLACES.format(places=places, lines=lines)
    expected = {row for mark in told for row in marked(program, mark)}
    assert set(rows(program, "XLA205")) == expected
