"""Checkpointed blocks behind an embedding that is trained."""

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
        self.body = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, ids):
        return self.head(checkpoint(self.body, self.embed(ids)).mean(1))


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Blocks().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for ids, y in pl.MpDeviceLoader(shares(tokens()), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), y)
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
