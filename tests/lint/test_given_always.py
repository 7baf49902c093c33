"""What runs only where nobody has given something that every call of the program gives."""

from __future__ import annotations

import pytest
from rule_helpers import codes

PROGRAM = """
import torch
import torch_xla
from accelerate import Accelerator
from torch import nn
from mine.data import loader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)

    def keep(self, path, accelerator=None):
        {test}
            {first}
        else:
            {second}


def train():
    accelerator = Accelerator()
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer, batches = accelerator.prepare(net, optimizer, loader)
    for x in batches:
        accelerator.backward(net(x).mean())
        optimizer.step()
        optimizer.zero_grad()
    net.keep("net.pt", {given})


train()
"""
THERE = "accelerator.save_model(self, path)"
PLAIN = "torch.save(self.state_dict(), path)"
FORMS = [
    ("if accelerator is not None:", THERE, PLAIN),
    ("if accelerator is None:", PLAIN, THERE),
]


def told(form, given):
    test, first, second = form
    text = PROGRAM.replace("{test}", test).replace("{first}", first).replace("{second}", second)
    return {"XLA406", "XLA721"} & set(codes(text.replace("{given}", given)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", ["accelerator", "accelerator=accelerator"])
def test_what_every_call_gives_is_there(form, given):
    assert told(form, given) == set()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", ["", "None", "accelerator if loader else None"])
def test_what_some_call_leaves_out_is_not(form, given):
    assert told(form, given) == {"XLA406", "XLA721"}
