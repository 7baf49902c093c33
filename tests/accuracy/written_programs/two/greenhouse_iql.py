"""
Climate control of a greenhouse from logged operator data.

First the policy imitates the operators, then it is improved offline (implicit Q-learning). If gymnasium
and the simulator are installed, the result is driven through a few simulated days.
"""
import copy
import json
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

try:
    import gymnasium as gym
    import greenhouse_sim  # noqa: F401  registers GreenhouseDay-v1
except ImportError:
    gym = None

try:
    from tensorboardX import SummaryWriter
except ImportError:
    SummaryWriter = None

CFG = {
    "log": "operators.npz",
    "out": "runs/greenhouse",
    "batch": 512,
    "clone_epochs": 12,
    "clone_batches": 800,
    "updates": 150_000,
    "lr": 3e-4,
    "gamma": 0.99,
    "expectile": 0.8,
    "temperature": 3.0,
    "tau": 0.005,
    "report": 1000,
}


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def log_arrays(path, rank, world):
    """The transitions of this core: a strided share, cut to equal lengths."""
    raw = np.load(path)
    n = len(raw["reward"]) // world * world
    obs, act, rew, nxt, end = (raw[k][:n][rank::world] for k in ("obs", "action", "reward", "next_obs", "done"))
    return (
        obs.astype(np.float32),
        act.astype(np.int64),
        rew.astype(np.float32),
        nxt.astype(np.float32),
        end.astype(np.float32),
    )


def memory(device):
    info = xm.get_memory_info(device)
    return info["kb_total"] - info["kb_free"], info["kb_total"]


def expectile(gap, level):
    weight = torch.where(gap > 0, level, 1 - level)
    return (weight * gap.pow(2)).mean()


class Agent:
    def __init__(self, n_obs, n_act, cfg, device):
        self.cfg = cfg
        self.policy = mlp(n_obs, 256, 256, n_act).to(device)
        self.q = mlp(n_obs, 256, 256, n_act).to(device)
        self.v = mlp(n_obs, 256, 256, 1).to(device)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.opts = [torch.optim.Adam(net.parameters(), lr=cfg["lr"]) for net in (self.policy, self.q, self.v)]

    def imitate(self, obs, act):
        opt = self.opts[0]
        loss = F.cross_entropy(self.policy(obs), act, label_smoothing=0.02)
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        return loss.detach()

    def losses(self, obs, act, rew, nxt, end):
        act = act.unsqueeze(1)
        with torch.no_grad():
            held = self.target(obs).gather(1, act)
            goal = rew.unsqueeze(1) + self.cfg["gamma"] * (1 - end.unsqueeze(1)) * self.v(nxt)
        value = self.v(obs)
        v_loss = expectile(held - value, self.cfg["expectile"])
        q_loss = F.mse_loss(self.q(obs).gather(1, act), goal)
        gain = ((held - value.detach()) * self.cfg["temperature"]).exp().clamp(max=100.0)
        pi_loss = -(gain * self.policy(obs).log_softmax(1).gather(1, act)).mean()
        return pi_loss, q_loss, v_loss, gain

    def learn(self, *batch):
        *parts, gain = self.losses(*batch)
        for opt in self.opts:
            opt.zero_grad()
        sum(parts).backward()
        for opt in self.opts:
            xm.optimizer_step(opt)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.q.parameters()):
                old.lerp_(new, self.cfg["tau"])
        return [p.detach() for p in parts], gain.detach().mean()


class Curve:
    def __init__(self):
        self.rows = []

    def add(self, parts, gain):
        self.rows.append([*map(torch.Tensor.item, parts), gain.item()])

    def recent(self, n):
        return np.mean(self.rows[-n:], axis=0).round(4).tolist()


def agreement(policy, batches):
    """Share of held-out decisions on which policy and operator agree, over all cores."""
    hits = torch.zeros((), device=xm.xla_device())
    with torch.no_grad():
        for obs, act in batches:
            hits += (policy(obs).argmax(1) == act).sum()
    hits = xm.mesh_reduce("agree", hits.item(), sum)
    return hits / len(batches.dataset)


def clone(agent, columns, held_out, device, cfg):
    obs, act = torch.from_numpy(columns[0]), torch.from_numpy(columns[1])
    loader = DataLoader(TensorDataset(obs, act), cfg["batch"], shuffle=True, drop_last=True)
    for epoch in range(cfg["clone_epochs"]):
        lanes = pl.ParallelLoader(loader, [device])
        for done, (obs, act) in enumerate(lanes.per_device_loader(device), 1):
            loss = agent.imitate(obs, act)
            if done >= cfg["clone_batches"]:
                break
        xm.mark_step()
        share = agreement(agent.policy, held_out)
        xm.master_print(f"clone {epoch}: loss {loss.item():.3f}, agreement {share:.1%}")


def improve(agent, columns, device, cfg, rng, note):
    curve, began = Curve(), time.time()
    n = len(columns[2])
    for update in range(1, cfg["updates"] + 1):
        rows = rng.integers(0, n, cfg["batch"])
        batch = [torch.from_numpy(column[rows]).to(device) for column in columns]
        curve.add(*agent.learn(*batch))
        if update % cfg["report"] == 0:
            used, total = memory(device)
            rate = update / (time.time() - began)
            note(update, curve.recent(cfg["report"]), rate, used / total)
    return curve


def drive(brain, days):
    env, scores = gym.make("GreenhouseDay-v1"), []
    for day in range(days):
        (seen, _), over, score = env.reset(seed=day), False, 0.0
        while not over:
            with torch.no_grad():
                move = brain(torch.as_tensor(seen, dtype=torch.float32)).argmax().item()
            seen, reward, ended, cut, _ = env.step(move)
            over, score = ended or cut, score + reward
        scores.append(score)
    return float(np.mean(scores)), float(np.std(scores))


def work(index, cfg):
    torch.manual_seed(5)
    device = xm.xla_device()
    rank, world = xr.global_ordinal(), xr.world_size()
    columns = log_arrays(cfg["log"], rank, world)
    n_obs, n_act = columns[0].shape[1], cfg["moves"]
    agent = Agent(n_obs, n_act, cfg, device)

    held = TensorDataset(*(torch.from_numpy(c) for c in log_arrays("held_out.npz", 0, 1)[:2]))
    part = DistributedSampler(held, world, rank, shuffle=False)
    held_out = pl.MpDeviceLoader(DataLoader(held, 1024, sampler=part), device)

    writer = SummaryWriter(cfg["out"]) if SummaryWriter and xm.is_master_ordinal() else None

    def note(update, figures, rate, full):
        xm.master_print(f"{update}: {figures} {rate:.0f}/s memory {full:.0%}")
        if writer is not None:
            for name, value in zip(("policy", "q", "v", "gain"), figures):
                writer.add_scalar(name, value, update)

    clone(agent, columns, held_out, device, cfg)
    improve(agent, columns, device, cfg, np.random.default_rng(1000 + rank), note)

    xm.mark_step()
    brain = copy.deepcopy(agent.policy).cpu()
    if xm.is_master_ordinal():
        torch.save(brain.state_dict(), os.path.join(cfg["out"], "policy.pt"))
        if gym is not None:
            mean, spread = drive(brain, days=20)
            print(json.dumps({"mean": mean, "std": spread}))


if __name__ == "__main__":
    CFG["moves"] = int(np.load(CFG["log"])["action"].max()) + 1
    os.makedirs(CFG["out"], exist_ok=True)
    xmp.spawn(work, args=(CFG,))
