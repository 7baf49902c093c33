"""Noise drawn on the device, differently on each core, and averaged weights."""

import copy
import os

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


class Denoiser(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.time = nn.Linear(1, channels)
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, images, time):
        hidden = self.first(images) + self.time(time[:, None])[:, :, None, None]
        return self.last(F.silu(hidden))


@torch.no_grad()
def update(average, model, decay):
    for kept, new in zip(average.parameters(), model.parameters()):
        kept.lerp_(new, 1 - decay)


def diffusion_loss(model, images):
    time = torch.rand(images.shape[0], device=images.device)
    noise = torch.randn_like(images)
    mixed = (1 - time)[:, None, None, None] * images + time[:, None, None, None] * noise
    return F.mse_loss(model(mixed, time), noise - images)


def worker(index, args):
    torch.manual_seed(args["seed"])
    device = torch_xla.device()
    model = Denoiser()
    if os.path.exists(args["resume"]):
        state = torch.load(args["resume"], map_location="cpu")
        model.load_state_dict(state["model"])
    model = model.to(device)
    average = copy.deepcopy(model)
    torch_xla.manual_seed(args["seed"] + xr.global_ordinal())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dataset = ImageFolder(args["images"], v2.Compose([v2.Resize((64, 64)), v2.ToTensor()]))
    sampler = DistributedSampler(
        dataset,
        num_replicas=xr.world_size(),
        rank=xr.global_ordinal(),
        shuffle=True,
        drop_last=True,
    )
    loader = DataLoader(
        dataset, batch_size=args["batch"], sampler=sampler, num_workers=8, drop_last=True
    )
    device_loader = pl.MpDeviceLoader(loader, device)
    for epoch in range(args["epochs"]):
        sampler.set_epoch(epoch)
        for images, _ in device_loader:
            loss = diffusion_loss(model, images)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            update(average, model, 0.999)
        if xm.is_master_ordinal():
            print("epoch", epoch)
        xm.save({"model": model.state_dict(), "average": average.state_dict()}, args["resume"])


if __name__ == "__main__":
    torch_xla.launch(
        worker,
        args=({"seed": 5, "images": "faces", "batch": 64, "epochs": 100, "resume": "last.pt"},),
    )
