"""Small programs of six kinds, for tests/accuracy/cheaper.py."""

import argparse

import torch
import torch_xla
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)  # fmt: skip

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("recommender", "lstm", "decoder", "vit", "resnet", "mlp"))
kind = parser.parse_args().kind
device = torch_xla.device()


class Last(nn.Module):
    """An LSTM whose last state is classified."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(256, 512, batch_first=True)
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Logits(nn.Module):
    """A model of transformers that gives its logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits


def made():
    """Model, input, number of labels."""
    if kind == "recommender":
        layers = (nn.Embedding(200_000, 64), nn.Flatten(), nn.Linear(26 * 64, 512), nn.ReLU())
        x = torch.zeros(4096, 26, dtype=torch.long)
        return nn.Sequential(*layers, nn.Linear(512, 2)), x, 4096
    if kind == "lstm":
        return Last(), torch.zeros(64, 8, 256), 64
    if kind == "decoder":
        config = GPT2Config(n_layer=1, attn_implementation="eager")
        return Logits(GPT2LMHeadModel(config)), torch.zeros(4, 256, dtype=torch.long), 4 * 256
    if kind == "vit":
        config = ViTConfig(num_hidden_layers=1, num_labels=1000)
        return Logits(ViTForImageClassification(config)), torch.zeros(8, 3, 224, 224), 8
    if kind == "resnet":
        config = ResNetConfig(
            num_labels=1000, depths=[1, 1], layer_type="basic", hidden_sizes=[64, 128]
        )
        return Logits(ResNetForImageClassification(config)), torch.zeros(16, 3, 224, 224), 16
    layers = (nn.Linear(1025, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 1000))
    return nn.Sequential(*layers), torch.zeros(1024, 1025), 1024


model, x, rows = made()
model = model.to(device).train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(20):
    inputs, labels = x.to(device), torch.zeros(rows, dtype=torch.long).to(device)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs).flatten(0, -2), labels).backward()
    optimizer.step()
    torch_xla.sync()
