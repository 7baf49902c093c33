"""SPMD: one process, a mesh, sharded batches and the plain optimizer step."""

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

xr.use_spmd()


def report(step, loss):
    print(f"step {step}: {loss.item():.3f}")


def main():
    torch.manual_seed(11)
    devices = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(devices), (devices, 1, 1, 1), ("data", "c", "h", "w"))
    device = torch_xla.device()
    model = models.resnet50(num_classes=100).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    dataset = datasets.CIFAR100("data", transform=transforms.ToTensor())
    loader = DataLoader(dataset, batch_size=512, shuffle=True, num_workers=8, drop_last=True)
    batches = pl.MpDeviceLoader(
        loader,
        device,
        input_sharding=[
            xs.ShardingSpec(mesh, ("data", "c", "h", "w")),
            xs.ShardingSpec(mesh, ("data",)),
        ],
    )
    for epoch in range(30):
        model.train()
        for step, (images, labels) in enumerate(batches):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                xm.add_step_closure(report, args=(step, loss))
        print(f"epoch {epoch} is done")
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, "resnet.pt")


if __name__ == "__main__":
    main()
