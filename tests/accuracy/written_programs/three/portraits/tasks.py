"""A picture encoder with a head for each attribute."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.models import convnext_tiny


class Label(nn.Module):
    def __init__(self, dim, key, classes):
        super().__init__()
        self.key = key
        self.fc = nn.Linear(dim, classes)

    def loss(self, h, batch):
        return F.cross_entropy(self.fc(h), batch[self.key], ignore_index=-1)

    def measure(self, h, batch):
        known = batch[self.key].ge(0).float()
        right = self.fc(h).argmax(1).eq(batch[self.key]).float()
        return {f"{self.key}_acc": float((right * known).sum() / known.sum().clamp(min=1))}


class Age(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, 2)

    def spread(self, h):
        mean, raw = self.fc(h).float().unbind(1)
        return mean, F.softplus(raw) + 1e-2

    def loss(self, h, batch):
        mean, sigma = self.spread(h)
        z = (batch["age"] - mean) / sigma
        return (0.5 * z.square() + sigma.log()).mean() + 0.5 * math.log(2 * math.pi)

    def measure(self, h, batch):
        mean, sigma = self.spread(h)
        belief = torch.distributions.Normal(mean, sigma)
        fit = belief.log_prob(batch["age"]).mean()
        return {"age_ll": fit.item()}


class Portraits(nn.Module):
    def __init__(self, labels):
        super().__init__()
        self.encoder = convnext_tiny(weights=None, stochastic_depth_prob=0.1)
        dim = self.encoder.classifier[2].in_features
        self.encoder.classifier[2] = nn.Identity()
        self.heads = nn.ModuleDict({"age": Age(dim)})
        self.heads.update({key: Label(dim, key, n) for key, n in labels.items()})

    def empty(self):
        return {"age_ll": [], **{f"{k}_acc": [] for k in self.heads if k != "age"}}

    def forward(self, batch):
        h = self.encoder(batch["pixels"])
        return {name: head.loss(h, batch) for name, head in self.heads.items()}

    def measure(self, batch):
        h = self.encoder(batch["pixels"])
        out = {}
        for head in self.heads.values():
            out.update(head.measure(h, batch))
        return out
