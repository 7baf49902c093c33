"""Picks pallets: behaviour cloning of the planner's logs first, then PPO in the simulator.

    python warehouse_agent.py --demos /mnt/demos --resume runs/a/agent.pt
"""
import argparse
from collections import defaultdict
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.distributions import Categorical
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset


class PlannerLogs(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npz"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as z:
            return z["state"].astype(np.float32), z["action"].astype(np.int64)


class PolicyValue(nn.Module):
    def __init__(self, seen, choices, width=256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi, self.v = nn.Linear(width, choices), nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h), self.v(h).squeeze(-1)


class Persistent:
    """Saving and restoring of whatever `parts` gives."""

    def parts(self):
        raise NotImplementedError

    def restore(self, path, where):
        stored = torch.load(path, map_location=where)
        for name, part in self.parts().items():
            part.load_state_dict(stored[name])

    def keep(self, path):
        xm.save({name: part.state_dict() for name, part in self.parts().items()}, path)


class Explorer:
    """Rollouts with a copy of the policy on the host: the simulator needs each action at once."""

    def explore(self, envs, horizon):
        actor, rows = self.actor, defaultdict(list)
        seen = self.last_seen
        with torch.no_grad():
            for _ in range(horizon):
                logits, value = actor(torch.from_numpy(seen).float())
                draw = Categorical(logits=logits)
                action = draw.sample()
                after, reward, ended, cut, _ = envs.step(action.numpy())
                for key, item in zip(("s", "a", "lp", "v"), (torch.from_numpy(seen).float(), action, draw.log_prob(action), value)):
                    rows[key].append(item)
                rows["r"].append(torch.from_numpy(reward).float())
                rows["d"].append(torch.from_numpy(ended | cut).float())
                seen = after
            _, tail = actor(torch.from_numpy(seen).float())
        self.last_seen = seen
        stacked = {k: torch.stack(v) for k, v in rows.items()}
        return stacked, self.advantages(stacked, tail)

    def advantages(self, rows, tail, gamma=0.99, lam=0.95):
        out, run = torch.zeros_like(rows["r"]), torch.zeros_like(tail)
        after = tail
        for t in reversed(range(len(out))):
            alive = 1.0 - rows["d"][t]
            run = rows["r"][t] + gamma * after * alive - rows["v"][t] + gamma * lam * alive * run
            out[t], after = run, rows["v"][t]
        return out


def clone_step(net, optimizer, state, action):
    logits, _ = net(state)
    loss = F.cross_entropy(logits, action)
    optimizer.zero_grad()
    loss.backward()
    xm.optimizer_step(optimizer)
    return loss.detach()


def ppo_step(net, optimizer, clip, entropy, s, a, lp, adv, ret):
    logits, value = net(s)
    logp = F.log_softmax(logits, -1)
    new = logp.gather(1, a.unsqueeze(1)).squeeze(1)
    ratio = (new - lp).exp()
    gain = torch.minimum(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    spread = -(logp.exp() * logp).sum(-1).mean()
    loss = 0.5 * F.mse_loss(value, ret) - gain - entropy * spread
    optimizer.zero_grad()
    loss.backward()
    xm.reduce_gradients(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    return {"gain": gain.detach(), "spread": spread.detach(), "kl": (lp - new).detach().mean()}


class PalletAgent(Persistent, Explorer):
    def __init__(self, opts):
        self.opts, self.best, self.curve = opts, -float("inf"), []

    def parts(self):
        return {"net": self.net, "optimizer": self.optimizer}

    def __call__(self, index):
        opts = self.opts
        self.device = torch_xla.device(index)
        torch.manual_seed(opts.seed)
        envs = gym.make_vec(opts.env, num_envs=opts.envs, vectorization_mode="sync")
        shape = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
        self.net = PolicyValue(*shape).to(self.device)
        self.actor = PolicyValue(*shape)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=opts.lr)
        if opts.resume:
            self.restore(opts.resume, self.device)
        torch.manual_seed(opts.seed + 1 + xr.global_ordinal())
        self.last_seen, _ = envs.reset(seed=opts.seed + xr.global_ordinal())
        self.clone()
        self.improve(envs)

    def clone(self):
        logs = PlannerLogs(self.opts.demos)
        sampler = DistributedSampler(logs, num_replicas=xr.world_size(), rank=xr.global_ordinal())
        loader = DataLoader(logs, batch_size=256, sampler=sampler, drop_last=True)
        batches = pl.MpDeviceLoader(loader, self.device)
        step = partial(clone_step, self.net, self.optimizer)
        for epoch in range(self.opts.clone_epochs):
            sampler.set_epoch(epoch)
            losses = [step(*batch) for batch in batches]
            xm.master_print(f"clone {epoch}: {torch.stack(losses).mean().item():.4f}")

    def improve(self, envs):
        opts = self.opts
        step = partial(ppo_step, self.net, self.optimizer, opts.clip, opts.entropy)
        for turn in range(opts.turns):
            self.actor.load_state_dict({k: v.cpu() for k, v in self.net.state_dict().items()})
            rows, adv = self.explore(envs, opts.horizon)
            ret = adv + rows["v"]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            flat = TensorDataset(*(t.flatten(0, 1) for t in (rows["s"], rows["a"], rows["lp"], adv, ret)))
            minis = DataLoader(flat, batch_size=opts.batch, shuffle=True, drop_last=True)
            stats = defaultdict(float)
            for _ in range(opts.passes):
                for mini in pl.MpDeviceLoader(minis, self.device):
                    told = step(*mini)
                    for name, value in told.items():
                        stats[name] += float(value)
            if (mean := rows["r"].sum(0).mean().item()) > self.best:
                self.best = mean
            self.curve.append(mean)
            if turn % 20 == 0:
                xm.master_print(turn, f"return {mean:.1f}", {k: round(v / len(minis) / opts.passes, 4) for k, v in stats.items()})
                self.keep(Path(opts.out) / "agent.pt")


def options():
    p = argparse.ArgumentParser()
    for name, kind, default in [("demos", str, "demos"), ("env", str, "LunarLander-v3"), ("out", str, "."), ("resume", str, ""),
                                ("seed", int, 3), ("envs", int, 16), ("horizon", int, 256), ("batch", int, 512), ("passes", int, 4),
                                ("turns", int, 800), ("clone_epochs", int, 5), ("lr", float, 3e-4), ("clip", float, 0.2), ("entropy", float, 0.01)]:
        p.add_argument(f"--{name}", type=kind, default=default)
    return p.parse_args()


if __name__ == "__main__":
    agent = PalletAgent(options())
    xmp.spawn(agent)
    print(f"best return {agent.best:.1f}; last ten {np.mean(agent.curve[-10:]):.1f}")
