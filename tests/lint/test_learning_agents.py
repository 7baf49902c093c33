"""Agents that learn in environments: what learns every few steps, and several agents at once.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
"""

LEARNER = f"""\
{XM}
class Learner:
    def __init__(self, width, choices):
        self.device = torch_xla.device()
        self.net = torch.nn.Linear(width, choices).to(self.device)
        self.adam = torch.optim.Adam(self.net.parameters())
        self.turn = 0
    def choose(self, seen):
        with torch.no_grad():
            scores = self.net(torch.as_tensor(seen, device=self.device))
        return int(scores.argmax())
    def learn(self, seen, gains):
        loss = (self.net(seen.to(self.device)) - gains.to(self.device)).pow(2).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        torch_xla.sync()
        return loss.item()  # MARK
"""


def _learner(mark):
    return LEARNER.replace("# MARK", mark)


RUN = """
def run(env, store, learner):
    seen = env.reset()
    for step in range(100000):
        seen, gain, done, _ = env.step(learner.choose(seen))
        store.add(seen, gain)
"""

#: Programs by the rules that they are about.
PROGRAMS = {
    "XLA101: an agent that learns in every fourth turn": f"""\
{_learner("# !XLA101")}
{RUN}
        if step > 1000 and step % 4 == 0:
            learner.learn(*store.draw(64))
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA101: the interval in a name": f"""\
{_learner("# !XLA101")}
{RUN}
        time_to_learn = (step + 1) % LEARN_EVERY == 0
        if time_to_learn:
            learner.learn(*store.draw(64))
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA101: the other turns leave first": f"""\
{_learner("# !XLA101")}
{RUN}
        if step % 4 != 0:
            continue
        learner.learn(*store.draw(64))
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA101: an agent that counts its turns itself": f"""\
{_learner("# !XLA101")}
    def observe(self, store, seen, gain):
        store.add(seen, gain)
        self.turn = (self.turn + 1) % 4
        if self.turn == 0:
            if len(store) > 64:
                self.learn(*store.draw(64))
def run(env, store, learner):
    seen = env.reset()
    for step in range(100000):
        seen, gain, done, _ = env.step(learner.choose(seen))
        learner.observe(store, seen, gain)
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA101: a second network that learns more rarely than the first": f"""\
{_learner("# !XLA101")}
    def learn_slowly(self, seen):
        loss = self.net(seen.to(self.device)).mean()
        loss.backward()
        self.adam.step()
        return loss.item()
{RUN}
        learner.learn(*store.draw(64))
        if step % 100 == 0:
            learner.learn_slowly(seen)
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA101: what is shown every so often": f"""\
{_learner("# !XLA101")}
    def show(self, probe):
        return self.net(probe.to(self.device)).mean().item()
{RUN}
        learner.learn(*store.draw(64))
        if step % 500 == 0:
            print(learner.show(seen))
run(make_env(), make_store(), Learner(4, 2))
""",
    "XLA205: several agents, each with its optimizer": f"""\
{XM}
class Player:
    def __init__(self, width, device):
        self.critic = torch.nn.Linear(width, 1).to(device)
        self.adam = torch.optim.Adam(self.critic.parameters())
class Team:
    def __init__(self, widths):
        self.device = torch_xla.device()
        self.players = [Player(width, self.device) for width in widths]
    def learn(self, seen, gains):
        seen, gains = seen.to(self.device), gains.to(self.device)
        for i, player in enumerate(self.players):
            loss = (player.critic(seen).squeeze(1) - gains[:, i]).pow(2).mean()
            player.adam.zero_grad()
            loss.backward()
            player.adam.step()
            torch_xla.sync()
    def learn_by_number(self, seen, gains):
        seen, gains = seen.to(self.device), gains.to(self.device)
        for i in range(len(self.players)):
            player = self.players[i]
            loss = (player.critic(seen).squeeze(1) - gains[:, i]).pow(2).mean()
            player.adam.zero_grad()
            loss.backward()
            player.adam.step()
            torch_xla.sync()
""",
    "XLA205: networks and optimizers side by side": f"""\
{XM}
def learn(seen, gains):
    device = torch_xla.device()
    seen, gains = seen.to(device), gains.to(device)
    nets = [torch.nn.Linear(8, 1).to(device) for _ in range(3)]
    adams = [torch.optim.Adam(net.parameters()) for net in nets]
    for i, (net, adam) in enumerate(zip(nets, adams)):
        (net(seen).squeeze(1) - gains[:, i]).pow(2).mean().backward()
        adam.step()
        torch_xla.sync()
    net, adam = nets[0], adams[0]
    for step in range(1000):
        (net(seen).squeeze(1) - gains[:, step]).pow(2).mean().backward()  # !XLA205
        adam.step()
        torch_xla.sync()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_agents_are_written(name):
    program = PROGRAMS[name]
    asked = name.partition(":")[0].split()
    told = {(row, code) for row, code in found(program) if code in asked}
    assert told == {(row, code) for row, code in marks(program) if code in asked}
