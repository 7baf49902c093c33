"""The gradient of a shared weight is summed over the cores twice, once for each of its names."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from common import shares, tokens
from torch import nn
from torch.nn import functional as F


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)).relu())


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Tied().to(device)
    model.head.weight = model.embed.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for ids, _ in pl.MpDeviceLoader(shares(tokens()), device):
        optimizer.zero_grad()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        for _, p in model.named_parameters(remove_duplicate=False):  # fault
            p.grad = xm.all_reduce("sum", p.grad)
        for p in model.parameters():
            p.grad.div_(xr.world_size())
        optimizer.step()  # here


if __name__ == "__main__":
    torch_xla.launch(main)
