"""Agents that learn in environments: what learns every few steps, and several agents at once.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, rows, told

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

GAMBLER = f"""\
{XM}
from torch.distributions import Categorical
device = torch_xla.device()
net = torch.nn.Linear(4, 2).to(device)
adam = torch.optim.Adam(net.parameters())
env = make_env()
"""
TURN = """\
            dice = Categorical(logits=net(torch.as_tensor(seen, device=device)))
            move = dice.sample()
            seen, gain, done, _ = env.step(move.item())
"""
UPDATE = """\
        adam.zero_grad()
        loss.backward()
        adam.step()
        torch_xla.sync()
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

#: Lists that an episode fills.
PROGRAMS |= {
    "XLA206: as many as the episode had turns": f"""\
{GAMBLER}
def main():
    for episode in range(1000):
        seen, done, chances, gains = env.reset(), False, [], []
        while not done:
{TURN}
            chances.append(dice.log_prob(move))
            gains.append(gain)
        loss = -(torch.stack(chances) * sum(gains)).sum()  # !XLA206
{UPDATE}
main()
""",
    "XLA206: an episode that is broken off, and a list made of the list": f"""\
{GAMBLER}
class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)
        self.chances = []
    def forward(self, x):
        return self.body(x)
policy = Policy().to(device)
adam = torch.optim.Adam(policy.parameters())
def pick(seen):
    dice = Categorical(logits=policy(torch.as_tensor(seen, device=device)))
    move = dice.sample()
    policy.chances.append(dice.log_prob(move))
    return move.item()
def finish(gains):
        parts = []
        for chance, gain in zip(policy.chances, gains):
            parts.append((-chance * gain).reshape(1))
        loss = torch.cat(parts).sum()  # !XLA206
{UPDATE}
        del policy.chances[:]
def main():
    for episode in range(1000):
        seen, gains = env.reset(), []
        for turn in range(10000):
            seen, gain, ended, cut, _ = env.step(pick(seen))
            gains.append(gain)
            if ended or cut:
                break
        finish(gains)
main()
""",
    "XLA206: rollouts of a fixed length": f"""\
{GAMBLER}
def main():
    seen = env.reset()
    for rollout in range(1000):
        chances, gains = [], []
        for turn in range(20):
{TURN}
            chances.append(dice.log_prob(move))
            gains.append(gain)
            if done:
                seen = env.reset()
        loss = -(torch.stack(chances) * sum(gains)).sum()
{UPDATE}
main()
""",
    "XLA206: learning after so many turns, whatever the episode": f"""\
{GAMBLER}
class Store:
    def __init__(self):
        self.chances = []
store = Store()
def learn():
        loss = -torch.stack(store.chances).sum()
{UPDATE}
        del store.chances[:]
def main():
    turns = 0
    for episode in range(1000):
        seen, done = env.reset(), False
        while not done:
{TURN}
            store.chances.append(dice.log_prob(move))
            turns += 1
            if turns % 2000 == 0:
                learn()
main()
""",
    "XLA206: a window, and a loop that counts its turns": f"""\
{GAMBLER}
def main():
    for episode in range(1000):
        seen, done, chances, last = env.reset(), False, [], []
        while len(chances) < 128:
{TURN}
            chances.append(dice.log_prob(move))
            last.append(dice.log_prob(move))
            if len(last) > 4:
                last.pop(0)
            if done:
                seen = env.reset()
        loss = -torch.stack(chances).sum() - torch.stack(last).sum()
{UPDATE}
main()
""",
    "XLA206: on the host": f"""\
{GAMBLER}
def main():
    for episode in range(1000):
        seen, done, views = env.reset(), False, []
        while not done:
{TURN}
            views.append(torch.as_tensor(seen))
        print(torch.stack(views).mean())
main()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_agents_are_written(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


PLAYER = """\
import torch
import torch_xla


class Player:
    def __init__(self, env):
        self.env = env
        self.seen, _ = env.reset()

    def choose(self, net):
        seen = torch.tensor([self.seen], device=torch_xla.device())
        return net(seen).argmax(-1).item()

    def play_once(self, net: torch.nn.Module):
        action = {action}
        self.seen, reward, done, _, _ = self.{stepped}.step(action)
        return reward, done
"""


@pytest.mark.parametrize(
    ("action", "stepped", "told"),
    [
        ("self.choose(net)", "env", True),
        ("self.choose(net)", "envs", True),
        ("self.choose(net)", "counter", False),
        ("self.env.action_space.sample()", "env", False),
    ],
)
def test_a_method_that_takes_one_step_of_an_environment(action, stepped, told):
    program = PLAYER.format(action=action, stepped=stepped)
    assert rows(program, "XLA101") == ([12] if told else [])
