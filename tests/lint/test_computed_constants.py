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


KEPT = """
import torch
import torch_xla
from librosa.filters import mel as mel_filters

filters = {}


def to_mels(x, bands):
    key = f"{bands}-{x.device}"
    if key not in filters:
        filters[key] = torch.from_numpy(mel_filters(sr=16000, n_mels=bands)).to(x.device)
    anew = {}
    if key not in anew:
        anew[key] = torch.from_numpy(mel_filters(sr=16000, n_mels=bands)).to(x.device)  # !XLA603
    return torch.matmul(filters[key] + anew[key], x)


class Prompted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.LongTensor([0])
        self.table = torch.nn.Embedding(2, 8)

    def start(self, n):
        token = self.token.unsqueeze(0).expand(n, -1).to(next(self.parameters()).device)  # !XLA604
        return self.table(token)

    def forward(self, x):
        return self.start(x.size(0)) + x


def train(loader, optimizer):
    device = torch_xla.device()
    model = Prompted().to(device)
    for x in loader:
        x = x.to(device)  # !XLA603
        loss = model(to_mels(x, 80)).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_a_table_of_the_module_is_filled_once_and_a_token_is_uploaded_each_time():
    told = {(row, code) for row, code in found(KEPT) if code in {"XLA603", "XLA604"}}
    assert told == marks(KEPT)
