"""Models of google-research/big_vision on made-up images: ViT-S/16, MLP-Mixer-B/16, BiT-R50."""

import argparse

import torch
import torch_xla
from torch import nn
from transformers import BitConfig, BitForImageClassification, ViTConfig, ViTForImageClassification

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("vit-s16", "mixer-b16", "bit-r50"), required=True)
parser.add_argument("--batch-size", type=int, required=True)
options = parser.parse_args()


class Mixing(nn.Module):
    """One block of the MLP-Mixer: between the patches, then between the channels."""

    def __init__(self, patches, width, between_patches, between_channels):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.patches = nn.Sequential(
            nn.Linear(patches, between_patches),
            nn.GELU("tanh"),
            nn.Linear(between_patches, patches),
        )
        self.channels = nn.Sequential(
            nn.Linear(width, between_channels), nn.GELU("tanh"), nn.Linear(between_channels, width)
        )

    def forward(self, x):
        x = x + self.patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    """MLP-Mixer-B/16 for 224 x 224 images."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 768, 16, 16)
        self.blocks = nn.Sequential(*(Mixing(196, 768, 384, 3072) for _ in range(12)))
        self.norm = nn.LayerNorm(768)
        self.head = nn.Linear(768, 1000)

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Logits(nn.Module):
    """A model of transformers that gives its logits alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images).logits


def made():
    if options.model == "mixer-b16":
        return Mixer()
    if options.model == "vit-s16":
        sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
        config = ViTConfig(
            **sizes, num_labels=1000, attn_implementation="eager",
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        return Logits(ViTForImageClassification(config))
    return Logits(BitForImageClassification(BitConfig(num_labels=1000, layer_type="bottleneck")))


device = torch_xla.device()
model = made().to(device).train()
if options.model == "bit-r50":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(20):
    images = torch.zeros(options.batch_size, 3, 224, 224).to(device)
    labels = torch.zeros(options.batch_size, 1000).to(device)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    torch_xla.sync()
