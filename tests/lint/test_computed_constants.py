"""What is computed of constants on the host, and uploaded in each step."""

from __future__ import annotations

from rule_helpers import found, marks

COMPUTED = """
import numpy as np
import torch
import torch_xla


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = np.array([0.1, 0.2])

    def forward(self, x, flags):
        ids = torch.cat([torch.zeros(4), torch.ones(4)]).to(x.device)  # !XLA604
        upper = (torch.arange(8)[None, :] > torch.arange(8)[:, None]).to(x.device)  # !XLA604
        mean = torch.from_numpy(self.mean).float().to(x.device)  # !XLA604
        known = torch.stack([flags, torch.ones(4)]).to(x.device)
        told = (torch.arange(8) < flags.count).to(x.device)
        return x * ids.sum() * upper.sum() + mean.sum() + known.sum() + told.sum()


def train(loader, optimizer):
    device = torch_xla.device()
    model = Net().to(device)
    for x, flags in loader:
        loss = model(x.to(device), load(flags)).mean()  # !XLA603
        loss.backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_joined_and_compared_constants_are_computed_of_constants():
    told = {(row, code) for row, code in found(COMPUTED) if code in {"XLA603", "XLA604"}}
    assert told == marks(COMPUTED)
