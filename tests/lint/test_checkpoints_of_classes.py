"""Checkpoints of classes that are given their model, and devices that are chosen as they run."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

ENGINE = """
import torch
import torch_xla.core.xla_model as xm


class Engine:
    def __init__(self, settings, loaders, model, loss, optimizer):
        self.settings = settings
        self.loaders = loaders
        self.model = model
        self.loss = loss
        self.optimizer = optimizer

    def keep(self, worst):
        state = {
            "weights": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "worst": worst,
        }
        torch.save(state, self.settings.path)  # !XLA721

    def epoch(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            self.loss(self.model(x), y).backward()
            xm.optimizer_step(self.optimizer)
        self.keep(0)
"""


def test_what_a_class_trains_is_on_the_device_when_it_saves() -> None:
    told = {(row, code) for row, code in found(ENGINE) if code == "XLA721"}
    assert told == marks(ENGINE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xm.optimizer_step(self.optimizer)", "self.optimizer.step()"),
        ("self.model.state_dict()", "self.model.cpu().state_dict()"),
        ("torch.save(state", "xm.save(state"),
        (
            'self.model.state_dict(),\n            "optimizer": self.optimizer.state_dict(),',
            "worst,",
        ),
    ],
)
def test_what_is_saved_from_the_host_is_silent(old: str, new: str) -> None:
    program = ENGINE.replace(old, new)
    if "cpu()" in new:
        program = program.replace('            "optimizer": self.optimizer.state_dict(),\n', "")
    assert program != ENGINE
    assert rows(program, "XLA721") == []


CHOSEN = """
import torch
import torch_xla.core.xla_model as xm


class Agent:
    def __init__(self, net, device, use_tpu):
        if device == "auto":
            self.device = xm.xla_device() if use_tpu else torch.device("cpu")
        else:
            self.device = torch.device(device)
        self.net = net.to(self.device)

    def resume(self, path):
        kept = torch.load(path, map_location=self.device)
        self.net.load_state_dict(kept)
"""


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("self.device", [15]),
        ("torch.device('cpu')", []),
        ("lambda storage, place: storage", []),
        ("None", []),
    ],
)
def test_a_device_that_is_chosen_as_it_runs(place: str, told: list[int]) -> None:
    """On XLA devices it raises, whatever else the program runs on."""
    program = CHOSEN.replace("map_location=self.device", f"map_location={place}")
    assert rows(program, "XLA720") == told


def test_a_device_of_a_branch_for_gpus_is_silent() -> None:
    program = CHOSEN.replace(
        "        kept = torch.load(path, map_location=self.device)\n",
        "        if torch.cuda.is_available():\n"
        "            kept = torch.load(path, map_location=self.device)\n",
    )
    assert rows(program, "XLA720") == []
