"""The same shapes in every step, one read at the end."""

import torch
import torch_tpu
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_tpu import _loader

_loader._init_device("tpu")
loader = DataLoader(TensorDataset(torch.randn(48, 8), torch.randn(48, 1)), 4, drop_last=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = torch.zeros((), device="tpu")
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = (model(inputs.to("tpu")) - targets.to("tpu")).square().mean()
    loss.backward()
    optimizer.step()
    total += loss.detach()
print(total.item())
