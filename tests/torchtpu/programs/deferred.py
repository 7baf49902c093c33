"""DEFER_AND_FUSE: nothing is compiled before the host waits, here in every fourth step."""

import torch
import torch_tpu
from torch import nn
from torch_tpu import _loader

_loader._init_device("tpu")
import torch_tpu._internal.execution_mode as mode

mode.eager_mode = mode.EagerMode.DEFER_AND_FUSE
model = nn.Linear(8, 8).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = torch.zeros((), device="tpu")
for step in range(12):
    loss = model(torch.randn(4 if step != 8 else 5, 8).to("tpu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.detach()
    if step % 4 == 3:
        torch.accelerator.synchronize()
print(total.item())
