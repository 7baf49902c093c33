"""It ends in an error of its own, with operations still queued."""

import torch
import torch_tpu
from torch import nn
from torch_tpu import _loader

_loader._init_device("tpu")
model = nn.Linear(8, 8).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    model(torch.randn(4, 8).to("tpu")).sum().backward()
    optimizer.step()
raise ValueError("as it was meant to")
