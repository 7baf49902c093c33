"""FSDP: the wrapper reduces, each core steps by itself."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch_xla.distributed import parallel_loader as pl
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP

from project.data import Patches


class Encoder(nn.Module):
    def __init__(self, width=1024, depth=16):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Linear(width, 1000)

    def forward(self, patches):
        return self.head(self.blocks(patches).mean(1))


def accuracy(model, loader, device):
    model.eval()
    correct = torch.zeros((), device=device)
    count = 0
    with torch.no_grad():
        for patches, labels in loader:
            correct += (model(patches).argmax(-1) == labels).sum()
            count += labels.shape[0]
    return xm.mesh_reduce("correct", correct.item(), sum) / (count * xr.world_size())


def loop(index, epochs, batch_size):
    torch.manual_seed(9)
    device = torch_xla.device()
    model = FSDP(Encoder().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    parts = {}
    for name in ("train", "test"):
        dataset = Patches(name)
        sampler = DistributedSampler(
            dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=name == "train"
        )
        parts[name] = DataLoader(
            dataset, batch_size=batch_size, sampler=sampler, num_workers=4, drop_last=True
        )
    train_loader = pl.MpDeviceLoader(parts["train"], device)
    test_loader = pl.MpDeviceLoader(parts["test"], device)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        parts["train"].sampler.set_epoch(epoch)
        model.train()
        for patches, labels in train_loader:
            loss = loss_fn(model(patches), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        xm.master_print(f"{epoch}: {accuracy(model, test_loader, device):.3f}")


if __name__ == "__main__":
    torch_xla.launch(loop, args=(10, 64))
