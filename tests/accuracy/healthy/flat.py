"""Everything in the function that each core runs."""

import argparse

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(4)
        self.head = nn.Linear(16 * 7 * 7, 10)

    def forward(self, images):
        features = self.pool(torch.relu(self.conv(images)))
        return self.head(features.flatten(1))


def _mp_fn(index, flags):
    torch.manual_seed(flags.seed)
    device = torch_xla.device()
    dataset = datasets.MNIST(flags.data, train=True, transform=transforms.ToTensor())
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(
        dataset, batch_size=flags.batch_size, sampler=sampler, num_workers=4, drop_last=True
    )
    device_loader = pl.MpDeviceLoader(loader, device)
    model = Digits().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr, momentum=0.9)
    model.train()
    for epoch in range(flags.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for images, labels in device_loader:
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        mean = xm.mesh_reduce(
            "loss", total.item() / len(loader), lambda parts: sum(parts) / len(parts)
        )
        xm.master_print(f"epoch {epoch}: loss {mean:.4f}")
    xm.save(model.state_dict(), flags.out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="digits.pt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    flags = parser.parse_args()
    torch_xla.launch(_mp_fn, args=(flags,))


if __name__ == "__main__":
    main()
