"""Loops over rows of device tensors, rollouts that sample, GANs that step twice, copied states."""

from __future__ import annotations

import pytest
from rule_helpers import codes, marks, told

#: What the programs of reinforcement learning below share.
ACTOR = """\
import torch
import torch_xla
from torch.distributions import Categorical

device = torch_xla.device()


class Actor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.body(x)


actor = Actor().to(device)
"""
#: A recurrent layer beside one that no line runs.
HEARD = """\
import torch
import torch_xla

class Tones(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heard = torch.nn.LSTM(8, 4)  # !XLA216
        self.spare = torch.nn.LSTM(8, 4){marked}

    def forward(self, x):
        return {runs}

tones = Tones().to(torch_xla.device())
"""
PROGRAMS = {
    "XLA216: a layer that no line runs": HEARD.format(marked="", runs="self.heard(x)"),
    "XLA216: one that a text may name": HEARD.format(
        marked="  # !XLA216", runs="getattr(self, self.which)(self.heard(x))"
    ),
    "XLA216: advantages, summed up from the last one": f"""\
{ACTOR}

def advantages(rewards, values, gamma):
    rewards, values = torch.stack(rewards).to(device), torch.stack(values).to(device)
    out = torch.zeros_like(rewards, device=device)
    gae = 0.0
    for t in reversed(range(len(rewards) - 1)):  # !XLA216
        gae = rewards[t] + gamma * values[t + 1] - values[t] + gamma * gae
        out[t] = gae
    return out
""",
    "XLA216: as many turns as an argument says, backwards": f"""\
{ACTOR}

def returns(args, rewards):
    rewards = rewards.to(device)
    last, out = 0.0, []
    for t in range(args.num_steps - 1, -1, -1):  # !XLA216
        last = rewards[t] + args.gamma * last
        out.append(last)
    return torch.stack(out[::-1])
""",
    "XLA216: a recurrence over time, by a name of the length": f"""\
{ACTOR}

def smooth(x, decay):
    x = x.to(device)
    batch, time, width = x.shape
    state = torch.zeros(batch, width, device=device)
    for t in range(time):  # !XLA216
        state = decay * state + x[:, t]
    return state
""",
    "XLA216: one row after the other": f"""\
{ACTOR}

def normalised(x):
    x = x.to(device)
    out = torch.zeros_like(x)
    for i in range(x.size(0)):  # !XLA216
        out[i] = x[i] / x[i].norm()
    return out
""",
    "XLA216: few turns, colours, lists, the host": f"""\
{ACTOR}

def eight(x):
    x = x.to(device)
    total = 0
    for t in reversed(range(8)):
        total = total + x[t]
    return total


def colours(x, mean):
    x = x.to(device)
    for c in range(x.shape[1]):
        x[:, c] = x[:, c] - mean[c]
    return x


def layers(weights, x):
    for i in range(len(weights)):
        x = weights[i] @ x
    return x


def on_the_host(rewards):
    rewards, last, out = torch.tensor(rewards), 0.0, []
    for t in reversed(range(len(rewards))):
        last = rewards[t] + 0.99 * last
        out.append(last)
    return torch.stack(out).to(device)


def with_ends(x):
    x = x.to(device)
    state = x[0]
    for t in range(len(x)):
        state = state + x[t]
        torch_xla.sync()
    return state
""",
    "XLA301: a rollout whose actions are sampled": f"""\
{ACTOR}

def rollout(env, steps):
    seen, _ = env.reset()
    kept = []
    for _ in range(steps):  # !XLA301
        with torch.no_grad():
            policy = Categorical(logits=actor(torch.as_tensor(seen).to(device)))
            action = policy.sample()
        seen, reward, done, _, _ = env.step(action.tolist())
        kept.append((reward, done))
    return kept


def train(env, optimizer, updates, steps):
    for _ in range(updates):
        rollout(env, steps)
        optimizer.step()
        torch_xla.sync()
""",
    "XLA301: one that ends its graph, one that takes the best action": f"""\
{ACTOR}

def ended(env, steps):
    seen, _ = env.reset()
    for _ in range(steps):
        policy = Categorical(logits=actor(torch.as_tensor(seen).to(device)))
        action = policy.sample()
        torch_xla.sync()
        seen, reward, done, _, _ = env.step(action.tolist())


def greedy(env, steps):
    seen, _ = env.reset()
    for _ in range(steps):
        action = actor(torch.as_tensor(seen).to(device)).argmax(-1)
        seen, reward, done, _, _ = env.step(action.tolist())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_and_rollouts(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


GAN = """\
import copy

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from nets import Critic, Painter


def train(index, args, data):
    torch.manual_seed(0)
    device = torch_xla.device()
    painter, critic = Painter().to(device), Critic().to(device)
    opt_p = torch.optim.AdamW(painter.parameters(), lr=args.lr)
    opt_c = torch.optim.AdamW(critic.parameters(), lr=args.lr)
    for n, (x, y) in enumerate(pl.MpDeviceLoader(data, device)):
        fake = painter(x)
        (critic(fake.detach()).mean() - critic(y).mean()).backward()
        {step}
        for weight in critic.parameters():
            weight.grad = None
        (-critic(fake).mean()).backward()
        xm.optimizer_step(opt_p)
        {last}
        for weight in painter.parameters():
            weight.grad = None
        if index == 0 and n % args.every == 0:{alone}
            state = painter.state_dict()
            torch.save(copy.deepcopy(state), f"painter-{{n}}.pt"){saved}
            state = opt_p.state_dict()
            torch.save(copy.deepcopy(state), f"optimizer-{{n}}.pt"){saved}


if __name__ == "__main__":
    torch_xla.launch(train, args=(None, []))
"""


@pytest.mark.parametrize(
    ("step", "last", "told_there"),
    [
        ("opt_c.step()  # !XLA302", "xm.optimizer_step(opt_c)", True),
        ("xm.optimizer_step(opt_c)", "pass", False),
        ("opt_c.step() if args.host else xm.optimizer_step(opt_c)", "pass", False),
    ],
)
def test_a_step_before_the_reduction_of_later_gradients(step, last, told_there):
    program = GAN.format(step=step, last=last, alone="", saved="")
    assert ("XLA302" in codes(program)) is told_there
    assert told("XLA302: a GAN", program) == marks(program)


def test_copies_of_states_that_the_master_saves():
    program = GAN.format(
        step="xm.optimizer_step(opt_c)", last="pass", alone="  # !XLA425", saved="  # !XLA721"
    )
    assert told("XLA425 XLA721: saves", program) == marks(program)


@pytest.mark.parametrize(("default", "rows"), [("True", True), ("False", False)])
def test_autocast_by_a_setting(default, rows):
    program = f"""\
import dataclasses

import torch
import torch_xla


@dataclasses.dataclass
class Settings:
    amp: bool = {default}


class Runner:
    def __init__(self, net, settings=None):
        self.settings = settings or Settings()
        self.net = net.to(torch_xla.device())

    def run(self, x):
        with torch.cuda.amp.autocast(enabled=self.settings.amp):
            return self.net(x.to(torch_xla.device())).mean()
"""
    assert ("XLA703" in codes(program)) is rows


TURNS = """\
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(net, optimizer, data, strategy, every):
    device = torch_xla.device()
    net.to(device)
    begun = time.time()
    for x in pl.MpDeviceLoader(data, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        save_now = time.time() - begun > every
        if CONDITION:
            print(loss.item())
"""


@pytest.mark.parametrize(
    ("condition", "each"),
    [
        ("strategy.tensor_parallel_rank == 0", True),
        ("strategy.rank == 0 and strategy.pipeline_ordinal == 3", True),
        ("strategy.steps == 0", False),
        ("save_now", False),
    ],
)
def test_a_cores_number_is_no_interval_and_a_flag_of_the_turn_is_one(condition, each):
    program = TURNS.replace("CONDITION", condition)
    assert ("XLA101" in codes(program)) is each
