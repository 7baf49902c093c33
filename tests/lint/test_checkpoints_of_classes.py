"""Checkpoints of classes that are given their model, and devices that are chosen as they run."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

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


KEEPER = """
import torch
try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None


class Keeper:
    def __init__(self, nets, settings):
        self.nets, self.settings, self.optimizers = nets, settings, []
        for net in nets:
            self.optimizers.append(torch.optim.Adam(net.parameters()))

    def advance(self, optimizer):
        if self.settings.accelerator == "xla":
            xm.optimizer_step(optimizer)
        else:
            optimizer.step()

    def keep(self, number, path):
        kept = {"number": number, "optimizers": []}
        for one in self.optimizers:
            kept["optimizers"].append(one.state_dict())
        torch.save(kept, path)
"""


def test_states_that_are_put_into_a_list_of_what_is_saved() -> None:
    assert rows(KEEPER, "XLA721") == [25]
    updated = KEEPER.replace(
        'kept["optimizers"].append(one.state_dict())', 'kept.update({"last": one.state_dict()})'
    )
    assert rows(updated, "XLA721") == [25]
    # Who knows of xm.save has a reason for the other.
    both = f"{KEEPER}\n    def other(self, kept, path):\n        xm.save(kept, path)\n"
    assert rows(both, "XLA721") == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("state[name] = value.cpu()", []),
        ("state[name] = value.detach().to('cpu')", []),
        ("print(name, value.shape)", [9]),
        ("other[name] = value.cpu()", [9]),
    ],
)
def test_a_state_that_is_fetched_one_by_one(line: str, told: list[int]) -> None:
    program = f"""
import torch
import torch_xla.core.xla_model as xm
net = torch.nn.Linear(3, 3).to(xm.xla_device())
other = {{}}
state = net.state_dict()
for name, value in state.items():
    {line}
torch.save({{"net": state}}, "net.pt")
"""
    assert rows(program, "XLA721") == told


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


LED = """
import lightning as L
import torch


class Painter(L.LightningModule):
    def __init__(self, net, often):
        super().__init__()
        self.net, self.often, self.seen = net, often, {}

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters())

    def training_step(self, batch, number):
        loss = self.net(batch).mean()
        if number % self.often == 0:
            torch.save(SAVED, "last.pt")
        return loss


painter = Painter(torch.nn.Linear(3, 3), 100)
L.Trainer(accelerator="tpu", devices=8).fit(painter)
torch.save(painter.state_dict(), "end.pt")
"""


@pytest.mark.parametrize(
    ("saved", "told"),
    [
        ("self.net.state_dict()", True),
        ("self.state_dict()", True),
        ('{"net": self.net.state_dict(), "number": number}', True),
        ("self.net.cpu().state_dict()", False),
        ("self.seen", False),
        ("self.seen.state_dict()", False),
    ],
)
def test_a_hook_of_lightning_saves_what_is_on_the_device(saved: str, *, told: bool) -> None:
    """Behind ``fit`` all is on the host again."""
    assert rows(LED.replace("SAVED", saved), "XLA721") == ([17] if told else [])


ONE_BY_ONE = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from making import build_optimizer

net = torch.nn.Linear(3, 3)
optimizer = build_optimizer({}, model=net)


def run(model, loader, adam):
    for x in loader:
        adam.zero_grad()
        model(x).mean().backward()
        STEP


if __name__ == "__main__":
    net.to(torch_xla.device())
    run(net, torch.load("rows.pt"), optimizer)
    kept = list(net.parameters())
    torch.save(SAVED, "net.pt")
"""


@pytest.mark.parametrize(
    ("saved", "told"),
    [
        ("net.parameters()", True),
        ("kept", True),
        ("[x.detach().clone() for x in net.parameters()]", True),
        ("{name: x.data for name, x in net.named_parameters()}", True),
        ("dict(net.named_buffers())", True),
        ('{"optimizer": optimizer.state_dict(), "step": 3}', True),
        ("[x.cpu() for x in net.parameters()]", False),
        ("[x.detach().cpu() for x in net.parameters()]", False),
        ("[x.numel() for x in net.parameters()]", False),
        ("[name for name, _ in net.named_parameters()]", False),
        ("len(list(net.parameters()))", False),
    ],
)
def test_parameters_one_by_one_and_an_optimizer_that_others_step(saved: str, *, told: bool) -> None:
    program = ONE_BY_ONE.replace("SAVED", saved).replace("STEP", "xm.optimizer_step(adam)")
    assert rows(program, "XLA721") == ([22] if told else [])


def test_an_optimizer_that_nobody_has_seen_on_the_device_is_silent() -> None:
    program = ONE_BY_ONE.replace("SAVED", "optimizer.state_dict()").replace("STEP", "adam.step()")
    assert rows(program, "XLA721") == []


def test_a_generator_of_parameters_is_not_fixed_but_told_as_what_it_is() -> None:
    program = ONE_BY_ONE.replace("SAVED", "net.parameters()").replace("STEP", "adam.step()")
    result = engine.lint(
        Source("train.py", program), engine.LintOptions(codes=frozenset({"XLA721"}))
    )
    assert ["TypeError" in one.message for one in result.findings] == [True]
    assert [one.fix for one in result.findings] == [None]
