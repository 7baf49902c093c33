import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla


class Mixer(nn.Module):
    def __init__(self, channels, drop):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.wide, self.back = nn.Conv2d(channels, 4 * channels, 1), nn.Conv2d(4 * channels, channels, 1)
        self.drop = drop

    def forward(self, x):
        h = F.gelu(self.wide(self.norm(self.depth(x))))
        h = F.dropout2d(h, self.drop)
        return x + self.back(h)


class SpectrogramNet(nn.Module):
    def __init__(self, species, plan=((64, 2), (128, 2), (256, 4)), drop=0.1):
        super().__init__()
        layers, before = [], 1
        for width, depth in plan:
            layers.append(nn.Conv2d(before, width, 4, 4 if before == 1 else 2, 0 if before == 1 else 1))
            layers += [Mixer(width, drop) for _ in range(depth)]
            before = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(before, species)
        self.head_drop = drop

    def forward(self, x):
        pooled = self.body(x).mean((2, 3))
        pooled = F.dropout(pooled, self.head_drop, training=self.training)
        return self.head(pooled)


class Shadow:
    """Exponential average of a net, beside it on the device."""

    def __init__(self, net, decay=0.9995):
        self.net = copy.deepcopy(net).eval().requires_grad_(False)
        self.net.to(torch_xla.device(1))
        self.decay = decay

    @torch.no_grad()
    def follow(self, net):
        for mine, theirs in zip(self.net.parameters(), net.parameters()):
            mine.lerp_(theirs, 1 - self.decay)
        for mine, theirs in zip(self.net.buffers(), net.buffers()):
            mine.copy_(theirs)


def blend(x, y, alpha):
    """mixup with one factor for each sample, drawn on the host by the loader."""
    a = alpha.view(-1, 1, 1, 1)
    return a * x + (1 - a) * x.flip(0), a.view(-1, 1) * y + (1 - a.view(-1, 1)) * y.flip(0)
