"""A checkpointed block behind a frozen embedding gets no gradient."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import shares, tokens
from torch import nn
from torch.nn import functional as F
from torch_xla.utils.checkpoint import checkpoint


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, ids):
        hidden = checkpoint(self.body, self.embed(ids))  # fault
        return self.head(hidden.mean(1))


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Blocks().to(device)
    model.embed.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids, y in pl.MpDeviceLoader(shares(tokens()), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), y)
        loss.backward()
        xm.optimizer_step(optimizer)  # here


if __name__ == "__main__":
    torch_xla.launch(main)
