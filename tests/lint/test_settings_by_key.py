"""Dictionaries whose keys are written: what stands under each key is that, and not the others.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

PLAYER = """\
import torch
class Player:
    def __init__(self, actions, rate, width=32, place="cpu"):
        self.net = torch.nn.Linear(width, actions)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=rate)  # !XLA305
        self.place = place
        self.net.to(self.place)
    def act(self, seen):
        return self.net(torch.tensor(seen).float().to(self.place)).argmax().item()  # !XLA101
"""
ROUNDS = """\
def rounds(player, env, count):
    for _ in range(count):
        seen, done = env.reset(), False
        while not done:
            seen, reward, done, _ = env.step(player.act(seen))
"""
#: What a program writes between its imports and ``rounds(player, env, 500)``.
MADE = {
    "a key that is set": """
settings = dict(actions=3, rate=1e-3)
settings["place"] = xm.xla_device()
player = Player(**settings)
""",
    "a literal": 'player = Player(**{"actions": 3, "rate": 1e-3, "place": xm.xla_device()})\n',
    "one that is brought up to date": """
settings = {"actions": 3, "rate": 1e-3}
settings.update(place=xm.xla_device(), width=64)
player = Player(**settings)
""",
    "one of two that are put together": """
usual = {"actions": 3, "rate": 1e-3, "place": "cpu"}
player = Player(**{**usual, "place": xm.xla_device()})
""",
    "dict of another": """
usual = {"actions": 3, "rate": 1e-3}
player = Player(**dict(usual, place=xm.xla_device()))
""",
    "a key that is asked for": """
settings = {"name": "pong", "place": xm.xla_device(), "rate": 1e-3}
player = Player(3, settings["rate"], place=settings.get("place"))
""",
    "a key that is taken out": """
settings = {"name": "pong", "place": xm.xla_device(), "rate": 1e-3}
place = settings.pop("place")
player = Player(3, 1e-3, 16, place)
""",
    "one branch of two": """
settings = dict(actions=3, rate=1e-3)
if on_tpu:
    settings["place"] = xm.xla_device()
else:
    settings["place"] = "cuda"
player = Player(**settings)
""",
    "a function that makes it": """
def chosen():
    return {"actions": 3, "rate": 1e-3, "place": xm.xla_device()}
player = Player(**chosen())
""",
    "arguments that are handed on": """
def build(**more):
    return Player(3, **more)
player = build(rate=1e-3, place=xm.xla_device())
""",
}
#: The same, where the player stays on the host.
HOST = {
    "the device stands under another key": """
settings = {"eval_place": xm.xla_device(), "actions": 3, "rate": 1e-3, "place": "cpu"}
player = Player(**{name: settings[name] for name in ("actions", "rate")})
""",
    "asked for by its own key": """
settings = {"place": "cpu", "other": xm.xla_device(), "rate": 1e-3}
player = Player(3, settings["rate"], place=settings["place"])
""",
    "set back": """
settings = dict(actions=3, rate=1e-3, place=xm.xla_device())
settings["place"] = "cpu"
player = Player(**settings)
""",
}

#: Single files.
PROGRAMS = {
    "XLA101: what a batch holds under each key": """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
def train(net, adam, data):
    device = torch_xla.device()
    for images, labels, names in torch.utils.data.DataLoader(data, 8, drop_last=True):
        batch = {"images": images.to(device), "labels": labels, "names": names}
        adam.zero_grad()
        loss = net(batch["images"]).mean()
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
        counts = batch["labels"].sum().item()
        told = {"loss": loss, "seen": counts}
        history.append((told["loss"].item(), told["seen"]))  # !XLA101
        print(told["seen"])
""",
    "XLA103 XLA101: texts beside a tensor": """
import torch_xla
import torch_xla.core.xla_model as xm
def train(net, adam, loader):
    device = torch_xla.device()
    for step, (x, y) in enumerate(loader):
        out = {"loss": net(x.to(device), y.to(device)), "step": step}
        out["loss"].backward()
        xm.optimizer_step(adam, barrier=True)
        print(f"step {out['step']}")
        print(f"loss {out['loss']}")  # !XLA103
""",
}


def _told(files, tmp_path, asked):
    for filename, text in files.items():
        (tmp_path / filename).write_text(text)
    for result in lint_files(sorted(tmp_path.rglob("*.py")), Plan(engine.LintOptions())):
        text = files[result.filename.removeprefix(f"{tmp_path}/")]
        told = {(item.locations[0].row, item.code) for item in result.result.findings}
        yield text, {(row, code) for row, code in told if code in asked}


def _program(made):
    return (
        "import torch_xla.core.xla_model as xm\n"
        f"from player import Player\nfrom rounds import rounds\n{made}\nrounds(player, env, 500)\n"
    )


@pytest.mark.parametrize("name", MADE)
def test_a_device_that_reaches_an_object_through_a_dictionary(name, tmp_path):
    files = {"main.py": _program(MADE[name]), "player.py": PLAYER, "rounds.py": ROUNDS}
    for text, told in _told(files, tmp_path, {"XLA305", "XLA101"}):
        assert told == set(marks(text))


@pytest.mark.parametrize("name", HOST)
def test_an_object_that_stays_on_the_host(name, tmp_path):
    files = {"main.py": _program(HOST[name]), "player.py": PLAYER, "rounds.py": ROUNDS}
    for _, told in _told(files, tmp_path, {"XLA305", "XLA101"}):
        assert not told


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_stands_under_each_key(name):
    asked = name.partition(":")[0].split()
    text = PROGRAMS[name]
    told = {(row, code) for row, code in found(text) if code in asked}
    assert told == {(row, code) for row, code in marks(text) if code in asked}
