"""A read in the middle of each step, and an evaluation whose operations are new to the cache."""

import torch
import torch_tpu
from torch import nn
from torch_tpu import _loader

_loader._init_device("tpu")
model = nn.Linear(8, 8).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(4, 8).to("tpu")


def train():
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        if loss.item() > 1000:
            break
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate():
    scores = model(inputs).softmax(-1).amax(-1)
    return (scores * 3).tolist()


for _ in range(2):
    train()
    evaluate()
