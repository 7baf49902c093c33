"""All cores drop the same places: their generators have one seed."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch import nn
from torch.nn import functional as F


class Dropping(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.body(x)).relu()))  # fault


def main(index):
    torch_xla.manual_seed(0)
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Dropping().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
