import copy
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm


class QuantileNet(nn.Module):
    def __init__(self, width, actions, quantiles, hidden=512):
        super().__init__()
        self.actions, self.quantiles = actions, quantiles
        self.layers = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                    nn.Linear(hidden, actions * quantiles))

    def forward(self, seen):
        return self.layers(seen).view(-1, self.actions, self.quantiles)


class LearningFigures:
    """Means over the window between two reports."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.losses, self.values, self.highest = [], [], float("-inf")

    def update(self, told):
        self.losses.append(told["loss"])
        self.values.append(told["value"])
        self.highest = max(self.highest, told["top"].item())

    def compute(self):
        figures = {
            "loss": torch.stack(self.losses).mean().item(),
            "value": float(np.mean(self.values)),
            "highest": self.highest,
        }
        self.reset()
        return figures


class Learner:
    def __init__(self, cfg: SimpleNamespace, width, actions):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.net = QuantileNet(width, actions, cfg.quantiles).to(self.device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-2 / cfg.batch)
        if cfg.resume:
            self.resume(cfg.resume)

    @cached_property
    def device(self):
        return torch_xla.device()

    @cached_property
    def places(self):
        n = self.cfg.quantiles
        return ((torch.arange(n, dtype=torch.float32) + 0.5) / n).to(self.device)

    def resume(self, path):
        stored = torch.load(path, map_location="cpu")
        self.net.load_state_dict(stored["net"])
        self.target.load_state_dict(stored["net"])
        self.optimizer.load_state_dict(stored["optimizer"])
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    state[name] = value.to(self.device)

    def goals(self, batch):
        with torch.no_grad():
            best = self.net(batch.after).mean(-1).argmax(-1)
            ahead = self.target(batch.after)
            ahead = ahead.gather(1, best.view(-1, 1, 1).expand(-1, 1, self.cfg.quantiles)).squeeze(1)
            goal = batch.reward.unsqueeze(1).expand(-1, self.cfg.quantiles)
            goal += self.cfg.gamma * ahead * (~batch.done).unsqueeze(1)
        return goal

    def step(self, batch):
        quantiles = self.net(batch.seen)
        chosen = quantiles.gather(1, batch.action.view(-1, 1, 1).expand(-1, 1, self.cfg.quantiles)).squeeze(1)
        gap = self.goals(batch).unsqueeze(1) - chosen.unsqueeze(2)
        huber = torch.where(gap.abs() < 1, 0.5 * gap.pow(2), gap.abs() - 0.5)
        weight = (self.places.view(1, -1, 1) - gap.detach().lt(0).float()).abs()
        loss = (weight * huber).mean(2).sum(1).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        alive = chosen.detach()[~batch.done]
        return {"loss": loss.detach(), "value": alive.mean(), "top": quantiles.detach().amax((1, 2)).mean()}

    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.net.parameters()):
            slow.copy_(fast.detach())

    def weights(self):
        return {name: value.cpu() for name, value in self.net.state_dict().items()}

    def save(self, path):
        xm.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
