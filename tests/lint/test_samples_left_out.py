"""Replay memories that leave out samples without a next state: every batch has another size.

All programs are invented. ``# !XLA201`` marks a line on which that rule has to find something; no
other line may have one.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, marks, rows

HEAD = """\
import collections
import random
import torch
import torch_xla
from nets import Net
Turn = collections.namedtuple("Turn", ("seen", "did", "then", "won"))
device = torch_xla.device()
net, slow = Net().to(device), Net().to(device)
adam = torch.optim.Adam(net.parameters())
def learn(memory):
"""
REST = """\
    aim = torch.zeros(64, device=device)
    loss = (net(torch.cat(seen)) - aim).pow(2).mean() + ahead.mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    torch_xla.sync()
def play(env, memory):
    seen = env.reset()
    while True:
        state = torch.tensor(seen, device=device)
        seen, won, done, _ = env.step(net(state).argmax().item())
        memory.append(Turn(state, 0, None if done else state, won))
        learn(memory)
"""
LEARNS = {
    "columns with names": """\
    batch = Turn(*zip(*random.sample(memory, 64)))
    seen = batch.seen
    ahead = slow(torch.cat([s for s in batch.then if s is not None]))  # !XLA201
""",
    "columns taken apart": """\
    seen, did, then, won = zip(*random.sample(memory, 64))
    kept = [s for s in then if s is not None]
    ahead = slow(torch.stack(kept))  # !XLA201
""",
    "columns by number": """\
    columns = list(zip(*random.sample(memory, 64)))
    seen = columns[0]
    ahead = slow(torch.cat([s for s in columns[2] if s is not None], dim=0))  # !XLA201
""",
    "a generator": """\
    batch = Turn(*zip(*random.sample(memory, 64)))
    seen = batch.seen
    ahead = slow(torch.cat(tuple(batch.then)))
    more = slow(torch.cat(list(s for s in batch.then)))
""",
    "zeros where there is nothing": """\
    batch = Turn(*zip(*random.sample(memory, 64)))
    seen = batch.seen
    ahead = slow(torch.cat([s if s is not None else torch.zeros(1, 4) for s in batch.then]))
""",
    "parts of a loss that may be off": """\
    seen, did, then, won = zip(*random.sample(memory, 64))
    parts = [net(torch.cat(seen)).mean(), None]
    ahead = torch.stack([part for part in parts if part is not None])
""",
    "gradients that are there": """\
    seen, did, then, won = zip(*random.sample(memory, 64))
    ahead = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
""",
}


ROWS = """\
import random
import numpy as np
import torch
import torch_xla
def train(net, adam, n, size):
    states = torch.randn(n, 4, device=torch_xla.device())
    for step in range(1000):
        rows = {drawn}
        adam.zero_grad()
        net(states[rows]).sum().backward()
        adam.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize(
    "drawn",
    [
        "np.random.randint(0, n, 32)",
        "np.random.randint(0, n, size)",
        "np.random.randint(n, size=(size,))",
        "np.random.choice(n, size, replace=False)",
        "np.random.permutation(n)",
        "random.sample(range(n), size)",
        "random.choices(range(n), k=size)",
    ],
)
def test_drawn_rows_of_a_batch_are_data_of_the_graph(drawn):
    assert not rows(ROWS.format(drawn=drawn), "XLA208")


@pytest.mark.parametrize(
    "drawn", ["np.random.randint(0, n)", "random.randrange(n)", "np.random.choice(n)"]
)
def test_a_drawn_row_is_a_constant_of_the_graph(drawn):
    assert rows(ROWS.format(drawn=drawn), "XLA208")


@pytest.mark.parametrize("name", LEARNS)
def test_samples_of_a_memory(name):
    program = HEAD + LEARNS[name] + REST
    assert rows(program, "XLA201") == [row for row, _ in sorted(marks(program))]


def test_plain_pytorch_is_left_alone():
    program = HEAD + LEARNS["columns with names"] + REST
    lines = [line for line in program.splitlines(keepends=True) if "import torch_xla" not in line]
    text = (
        "".join(lines).replace("torch_xla.device()", '"cuda"').replace("torch_xla.sync()", "pass")
    )
    assert codes(text) == []
