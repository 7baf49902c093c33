"""Values through calls: starred arguments, callees of several kinds, self-tests."""

from __future__ import annotations

from rule_helpers import found, marked, marks, rows, told_in_files

WRAPPED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Process:
    def losses(self, model, x, t, extra=None):
        late = t > 3
        return model(x)[late].mean()  # here


class Spaced(Process):
    def losses(self, model, *args, **kwargs):
        return super().losses(self.wrapped(model), *args, **kwargs)

    def wrapped(self, model):
        return model if isinstance(model, Wrapped) else Wrapped(model)


class Wrapped:
    def __init__(self, model):
        self.model = model

    def __call__(self, x, **kwargs):
        return self.model(x, **kwargs)


def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    process = Spaced()
    for x in pl.MpDeviceLoader(loader, device):
        t = torch.randint(0, 10, (x.shape[0],), device=device)
        process.losses(model, x, t).backward()
        optimizer.step()
"""


def test_starred_arguments_reach_the_method_of_the_base():
    assert rows(WRAPPED, "XLA202") == marked(WRAPPED)


SPREAD = """
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Head(nn.Module):
    def forward(self, x, kept, scale=None, fast=False):
        if fast:
            return x
        if scale:
            x = x * scale
        return x[kept > 0]  # !XLA202


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, **batch):
        return self.head(**batch)


def train(loader, optimizer):
    device = torch_xla.device()
    model = Outer().to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        model(**batch).mean().backward()
        optimizer.step()
"""


def test_a_batch_that_is_spread_gives_what_has_no_default():
    told = {mark for mark in found(SPREAD) if mark[1] in {"XLA202", "XLA104"}}
    assert told == marks(SPREAD)


PARTS = {
    "model.py": """
import torch
import torch.nn as nn


def kept(x, keep):
    return x[keep > 0]


class Net(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.register_buffer("table", table)
        self.last = nn.Linear(4, 4)

    def forward(self, x, keep):
        rows = x[self.table > 0]
        return self.last(kept(x, keep)) + rows.sum()


if __name__ == "__main__":
    net = Net(torch.ones(4))
    print(net(torch.randn(2, 4), torch.ones(2)).sum().item(), kept(torch.ones(4), torch.ones(4)))
""",
    "try_it.py": """
import torch
from model import Net, kept


def run():
    net = Net(torch.ones(4))
    for _ in range(3):
        out = net(torch.randn(2, 4), torch.ones(2))
        print(kept(torch.randn(2), torch.ones(2)), out[torch.ones(2) > 0])


run()
""",
}
TRAIN = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from model import Net, kept


def train(loader, optimizer):
    device = torch_xla.device()
    model = Net(torch.ones(4)).to(device)
    for x, keep in pl.MpDeviceLoader(loader, device):
        model(x, keep).sum().backward()
        optimizer.step()
"""


def test_a_self_test_says_nothing_of_where_the_program_runs(tmp_path):
    told = told_in_files(tmp_path, {**PARTS, "train.py": TRAIN})
    masks = {place[:2] for place in told if place[2] == "XLA202"}
    assert masks == {("model.py", 7), ("model.py", 17)}


def test_without_a_program_for_xla_nothing_is_told(tmp_path):
    assert told_in_files(tmp_path, PARTS) == set()
