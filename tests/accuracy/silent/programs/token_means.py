"""Each core averages the loss over its own valid tokens; the cores have different numbers."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import shares, tokens
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        return self.head(self.embed(ids))


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids, _ in pl.MpDeviceLoader(shares(tokens()), device):
        optimizer.zero_grad()
        wanted = ids[:, 1:].masked_fill(ids[:, 1:] < 8, -100)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100)  # fault
        loss.backward()  # here
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
