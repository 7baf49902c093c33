"""Models that a file makes, alone or with their optimizers, and a function moves.

All programs are invented. ``# !XLA424`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import copy

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn

from parts import build


def make(kind, rate):
    net = kind(8, 2)
    return net, torch.optim.Adam(net.parameters(), lr=rate)


"""

PROGRAMS = {
    "XLA424 XLA721: made with their optimizers": """\
critic, critic_steps = make(nn.Linear, 1e-3)
painter, painter_steps = build(nn.Linear)
spare, spare_steps = make(nn.Linear, 1e-3)


def work(rank, rows):
    place = torch_xla.device()
    judge = critic.to(place)  # !XLA424
    artist = painter.to(place)  # !XLA424
    own = copy.deepcopy(spare).to(place)
    own.train()
    artist.train()
    for row in rows:
        loss = judge(artist(row.to(place))).mean() + own(row.to(place)).mean()
        loss.backward()
        xm.optimizer_step(critic_steps, barrier=True)
    torch.save(critic.state_dict(), "critic.pt")  # !XLA721
    torch.save(spare.state_dict(), "spare.pt")


xmp.spawn(work, args=([],))
""",
    "XLA721: a model from outside is moved in its place": """\
net = nn.Linear(8, 2)
other = nn.Linear(8, 2)


def main(rows):
    place = torch_xla.device()
    moved = net.to(place)
    for row in rows:
        moved(row.to(place))
    torch.save(net.state_dict(), "net.pt")  # !XLA721
    torch.save(other.state_dict(), "other.pt")
    moved.cpu()


def later():
    torch.save(net.state_dict(), "late.pt")


main([])
later()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(name):
    assert told(name, HEAD + PROGRAMS[name]) == marks(HEAD + PROGRAMS[name])
