"""Uploads that no Dataset can make: of what the turn before has read, and of constants."""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found

HEAD = """\
import numpy as np
import torch
import torch_xla
device = torch_xla.device()
net = make_net().to(device)
"""
PLAY = """\
def play(net, board):
    net.eval()
    while not board.is_over():
        x = torch.from_numpy(np.array(board.cells()))
        with torch.no_grad():
            scores = net(x.to(device))
        {moves}
        torch_xla.sync()
play(net, new_board())
"""
MOVES = {
    "board.push(scores.argmax().item())": False,
    "move = int(scores.argmax())\nname = NAMES[move]\nboard.push(name)": False,
    "board = board.after(scores.argmax().item())": False,
    "board.rows[2] = scores.argmax(-1).tolist()": False,
    "board, done = step(board, scores.cpu())": False,
    "board.shuffle()": True,
    "log.append(scores.argmax().item())": True,
    "board = next_board()\nlog.append(scores.argmax().item())": True,
    "board = next_board()\nboard.note(scores.argmax().item())": True,
}


@pytest.mark.parametrize("moves", MOVES)
def test_what_follows_from_the_turn_before_is_no_batch(moves):
    program = HEAD + PLAY.replace("{moves}", textwrap.indent(moves, " " * 8).strip())
    assert ("XLA603" in {code for _, code in found(program)}) is MOVES[moves]


ROWS = """\
net.eval()
total, hits = 0.0, []
with torch.no_grad():
    for batch in torch.utils.data.DataLoader(ROWS, batch_size=8, drop_last=True):
        x, y = batch["x"].to(device), batch["y"]
        {reads}
        torch_xla.sync()
"""


@pytest.mark.parametrize(
    "reads",
    [
        "total += net(x).sum().item()",
        "hits.append((net(x).argmax(-1).cpu() == y).sum())",
        'batch["found"] = net(x).cpu()',
        "size = net(x).argmax().item()\n        hits.append(torch.from_numpy(y[:size]).to(device))",
    ],
)
def test_what_is_put_into_a_batch_is_not_taken_to_the_next_turn(reads):
    assert "XLA603" in {code for _, code in found(HEAD + ROWS.replace("{reads}", reads))}


DECODING = """\
net = torch.nn.Linear(8, 8).to(device)
def decode(net, ids):
    with torch.no_grad():
        place = torch.tensor(0).to(device)
        for i in range(64):
            ids = net(ids, place).argmax(-1)
            place = {place}
            torch_xla.sync()
decode(net, first().to(device))
"""


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("torch.tensor(0, dtype=torch.int64).to(device)", False),
        ("torch.tensor(-1).to(device)", False),
        ("torch.as_tensor(1.5).float().to(device)", False),
        ("torch.tensor(next(PLACES)).to(device)", True),
    ],
)
def test_a_number_is_no_batch(place, told):
    codes = {code for _, code in found(HEAD + DECODING.replace("{place}", place))}
    assert ("XLA603" in codes) is told
