"""Accelerate's own step."""

import torch
import torch_xla
from accelerate import Accelerator
from common import Net, points
from torch.nn import functional as F
from torch.utils.data import DataLoader


def main(index):
    torch.manual_seed(0)
    accelerator = Accelerator()
    loader = DataLoader(points(), batch_size=8, drop_last=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()


if __name__ == "__main__":
    torch_xla.launch(main)
