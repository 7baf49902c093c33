"""What the master core alone reads of a checkpoint, and all cores then decide by.

``# !XLA420`` marks what is told; of a program without a mark nothing of the codes is told.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

CODES = {"XLA405", "XLA420", "XLA426"}
PROGRAM = """
import json
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def measure(net, loader):
    return xm.mesh_reduce("loss", 1.0, max)


def run(index, net, loader, settings):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    start, waited, best, done, kept = 0, 0, 1e9, 0, {{"epoch": 0}}
    {resumed}
    for epoch in range({begin}, 10):{mark_range}
        for x in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            net(x).sum().backward()
            xm.optimizer_step(optimizer)
            done += 1
        loss = measure(net, loader)
        waited = 0 if loss < 1.0 else waited
        waited += 1
        if {test}:
            {then}{mark}


torch_xla.launch(run, args=(None, None, None))
"""
MASTER = 'if xm.is_master_ordinal():\n    state = torch.load(settings.path, map_location="cpu")'


def _program(resumed, test="False", then="break", begin="0", **marked):
    said = {name: marked.get(name, "") for name in ("mark", "mark_range")}
    resumed = resumed.replace("\n", "\n    ")
    return PROGRAM.format(resumed=resumed, test=test, then=then, begin=begin, **said)


def _told(program):
    return sorted((row, code) for row, code in found(program) if code in CODES)


@pytest.mark.parametrize(
    ("resumed", "test", "then", "code"),
    [
        (f'{MASTER}\n    waited = state["waited"]', "waited == 5", "break", "XLA420"),
        (f'{MASTER}\n    best = float(state["best_loss"])', "loss < best",
         'xm.rendezvous("saved")', "XLA405"),
        (f'{MASTER}\n    start, best = state["epoch"] + 1, state.get("best", 0)', "loss < best",
         'xm.rendezvous("saved")', "XLA405"),
        (f'{MASTER}\n    done = state["counts"]["step"]', "done > 100", "break", "XLA420"),
        (f'{MASTER}\n    settings.best = state["best"]', "loss < settings.best",
         'xm.rendezvous("saved")', "XLA405"),
    ],
)  # fmt: skip
def test_what_decides(resumed, test, then, code):
    program = _program(resumed, test, then, mark=f"  # !{code}")
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize(
    ("resumed", "begin"),
    [
        (f'{MASTER}\n    start = state["epoch"]', "start"),
        (f'{MASTER}\n    start = int(state["epoch"])', "start + 1"),
        (f'{MASTER}\n    settings.start = state["epoch"]', "settings.start"),
        (f'{MASTER}\n    kept["epoch"] = state["epoch"]', 'kept["epoch"]'),
        ("if index == 0:\n    kept = json.load(open(settings.path))", 'kept["epoch"]'),
    ],
)
def test_where_the_epochs_begin(resumed, begin):
    program = _program(resumed, begin=begin, mark_range="  # !XLA420")
    assert _told(program) == sorted(marks(program)) != []


TENSOR = (
    "held = torch.tensor(best, device=device)\nxm.collective_broadcast([held])\nbest = held.item()"
)
SENT = "held = [best]\ndist.broadcast_object_list(held)\nbest = held[0]"
STATES = ('optimizer.load_state_dict(state["optimizer"])', 'schedule.load_state_dict(state["lr"])')


@pytest.mark.parametrize("state", STATES)
def test_the_state_of_what_steps(state):
    program = _program(f"{MASTER}\n    {state}  # !XLA426")
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_stays_where_the_weights_are_sent(state):
    sent = "\nfor p in net.parameters():\n    dist.broadcast(p, 0)"
    program = _program(f"{MASTER}\n    {state}  # !XLA426{sent}")
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("behind", ["", "\ndist.broadcast_object_list([optimizer.state_dict()])"])
def test_a_state_that_all_load_or_that_is_sent(state, behind):
    resumed = f"{MASTER}\n    {state}{behind}" if behind else f"{EACH}\n{state}"
    assert _told(_program(resumed)) == []


EACH = 'state = torch.load(settings.path, map_location="cpu")'


@pytest.mark.parametrize(
    ("resumed", "test", "begin"),
    [
        (f'{EACH}\nwaited, best, start = state["waited"], state["best"], state["epoch"]',
         "waited == 5", "start"),
        (f'if settings.path:\n    {EACH}\n    best = state["best"]', "loss < best", "0"),
        (f'{MASTER}\n    best = state["best"]\nbest = xm.mesh_reduce("best", best, min)',
         "loss < best", "0"),
        (f'{MASTER}\n    start = state["epoch"]\nstart = xm.mesh_reduce("start", start, max)',
         "False", "start"),
        (f'{MASTER}\n    best = state["best"]\n{SENT}', "loss < best", "0"),
        (f'{MASTER}\n    best = state["best"]\n{TENSOR}', "loss < best", "0"),
        (f'{MASTER}\n    print(state["epoch"])', "epoch == 5", "0"),
        (f'{MASTER}\n    title = state["name"]\n    print(title)', "epoch == 5", "0"),
    ],
)  # fmt: skip
def test_what_all_cores_know(resumed, test, begin):
    assert _told(_program(resumed, test, begin=begin)) == []


KEPT = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Trainer:
    def __init__(self, net, loader, path):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.loader, self.path, self.start = loader, path, 0
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def resume(self):
        {held_back}
        state = torch.load(self.path, map_location="cpu")
        self.start = state["epoch"]

    def fit(self):
        for epoch in range(self.start, 10):{mark}
            for x in pl.MpDeviceLoader(self.loader, self.device):
                self.optimizer.zero_grad()
                self.net(x).sum().backward()
                xm.optimizer_step(self.optimizer)
            self.start = epoch + 1


def run(index, net, loader):
    trainer = Trainer(net, loader, "last.pt")
    trainer.resume()
    trainer.fit()


torch_xla.launch(run, args=(None, None))
"""


@pytest.mark.parametrize(
    ("held_back", "mark"),
    [
        ("if not xm.is_master_ordinal():\n            return", "  # !XLA420"),
        ("if not self.path:\n            return", ""),
    ],
)
def test_an_attribute_that_another_method_sets(held_back, mark):
    program = KEPT.format(held_back=held_back, mark=mark)
    assert _told(program) == sorted(marks(program))
