"""What the programs of this folder share: a small network, and batches for each core."""

import torch
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 4


class Net(nn.Module):
    """Two layers with a norm between them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.body(x)).relu())


def points(count=96):
    """Points of four classes."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(count, 16, generator=generator)
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


def tokens(count=96, length=8, vocabulary=20):
    """Rows of token ids, and the class of each row."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, vocabulary, (count, length), generator=generator)
    return TensorDataset(ids, ids[:, 0] % CLASSES)


def shares(data=None, batch=8):
    """A loader that gives each core its own samples: six batches on two cores."""
    data = points() if data is None else data
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal(), shuffle=False)
    return DataLoader(data, batch, sampler=sampler, drop_last=True)
