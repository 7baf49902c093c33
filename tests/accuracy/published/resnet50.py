"""ResNet-50 on made-up images, as the benchmarks of published.toml train it."""

import argparse

import torch
import torch_xla
from transformers import ResNetConfig, ResNetForImageClassification

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--bfloat16", action="store_true", help="activations and products in bfloat16")
options = parser.parse_args()

device = torch_xla.device()
# The ResNet-50 v1.5 of torchvision: 25.6 million parameters, stride in the 3 x 3 convolution.
model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).to(device).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(20):
    images = torch.zeros(options.batch_size, 3, 224, 224).to(device)
    labels = torch.zeros(options.batch_size, dtype=torch.long).to(device)
    optimizer.zero_grad()
    with torch.autocast("xla", dtype=torch.bfloat16, enabled=options.bfloat16):
        logits = model(images).logits
    torch.nn.functional.cross_entropy(logits.float(), labels).backward()
    optimizer.step()
    torch_xla.sync()
