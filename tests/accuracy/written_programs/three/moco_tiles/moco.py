"""MoCo v2 with a queue that every core fills with the keys of all cores."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torchvision.transforms import Normalize

import torch_xla.core.xla_model as xm


def encoder(dim):
    net = torchvision.models.resnet50(weights=None)
    net.fc = nn.Sequential(nn.Linear(net.fc.in_features, 2048), nn.ReLU(), nn.Linear(2048, dim))
    return net


def everybody(keys):
    if xm.xrt_world_size() == 1:
        return keys
    return xm.all_gather(keys, dim=0)


class MoCo(nn.Module):
    def __init__(self, dim=128, slots=65536, momentum=0.999, temperature=0.2, bands=3):
        super().__init__()
        self.m, self.temperature = momentum, temperature
        self.online, self.target = encoder(dim), encoder(dim)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.normalize = Normalize([0.41, 0.43, 0.39][:bands], [0.19, 0.17, 0.18][:bands])
        self.register_buffer("queue", F.normalize(torch.randn(slots, dim), dim=1))

    @torch.no_grad()
    def follow(self):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(self.m).add_(o, alpha=1.0 - self.m)

    @torch.no_grad()
    def keys(self, view):
        self.follow()
        return F.normalize(self.target(view), dim=1)

    def forward(self, query, key, **_):
        query, key = self.normalize(query), self.normalize(key)
        q = F.normalize(self.online(query), dim=1)
        k = self.keys(key)
        near = (q * k).sum(1, keepdim=True)
        far = q @ self.queue.clone().detach().t()
        logits = torch.cat([near, far], dim=1) / self.temperature
        with torch.no_grad():
            fresh = everybody(k)
            self.queue.copy_(torch.cat([fresh, self.queue[: -fresh.shape[0]]]))
        return {"logits": logits, "q": q.detach(), "near": near.detach()}
