"""Every core seeds the numbers that it augments with alike."""

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, points, shares
from torch.nn import functional as F
from torch.utils.data import Dataset


class Augmented(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, at):
        x, y = self.data[at]
        return x + 0.1 * torch.from_numpy(np.random.randn(16).astype(np.float32)), y


def main(index):
    np.random.seed(0)  # fault
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(Augmented(points())), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
