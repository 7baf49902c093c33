"""A short last batch, a read in every step, and an operation that TorchTPU runs on the CPU."""

import torch
import torch_tpu
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_tpu import _loader

_loader._init_device("tpu")
import torch_tpu._internal.execution_mode as mode

mode.enable_cpu_fallback = True
data = TensorDataset(torch.randn(43, 8), torch.randn(43, 1))
loader = DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for _ in range(2):
        for inputs, targets in loader:
            inputs, targets = inputs.to("tpu"), targets.to("tpu")
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            optimizer.step()
            print(loss.item())
            (model(inputs) - targets).abs().flatten().median()


train()
