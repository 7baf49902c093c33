"""Two networks, two optimizers, one step."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
import torchvision
import torchvision.transforms as T
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

NOISE = 100


def generator():
    return nn.Sequential(
        nn.Linear(NOISE, 256),
        nn.ReLU(),
        nn.Linear(256, 3 * 32 * 32),
        nn.Tanh(),
        nn.Unflatten(1, (3, 32, 32)),
    )


def discriminator():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 32 * 32, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)
    )


def main(index, epochs, batch_size):
    torch.manual_seed(1234)
    device = torch_xla.device()
    net_g = generator().to(device)
    net_d = discriminator().to(device)
    torch_xla.manual_seed(1234 + xr.global_ordinal())
    opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    dataset = torchvision.datasets.CIFAR10("data", transform=T.ToTensor())
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(
        dataset, batch_size=batch_size, sampler=sampler, num_workers=4, drop_last=True
    )
    device_loader = pl.MpDeviceLoader(loader, device)
    criterion = nn.BCEWithLogitsLoss()
    real_label = torch.ones(batch_size, 1, device=device)
    fake_label = torch.zeros(batch_size, 1, device=device)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, _ in device_loader:
            opt_d.zero_grad()
            noise = torch.randn(batch_size, NOISE, device=device)
            fake = net_g(noise)
            loss_d = criterion(net_d(images), real_label) + criterion(
                net_d(fake.detach()), fake_label
            )
            loss_d.backward()
            xm.optimizer_step(opt_d)
            opt_g.zero_grad()
            loss_g = criterion(net_d(fake), real_label)
            loss_g.backward()
            xm.optimizer_step(opt_g)
        if xm.is_master_ordinal():
            print(f"epoch {epoch} is done")
        xm.save(net_g.state_dict(), f"generator-{epoch}.pt")


if __name__ == "__main__":
    torch_xla.launch(main, args=(25, 128))
