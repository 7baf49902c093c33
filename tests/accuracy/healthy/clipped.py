"""Gradients of several batches, reduced, clipped, and then applied; in bfloat16."""

import os

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from project.data import Recordings


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(80, 256, 5, stride=2, padding=2)
        self.blocks = nn.ModuleList([nn.Linear(256, 256) for _ in range(8)])
        self.head = nn.Linear(256, 64)

    def forward(self, spectra):
        hidden = self.front(spectra).transpose(1, 2)
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        return self.head(hidden)


def train(rank, flags):
    torch.manual_seed(flags["seed"])
    device = torch_xla.device()
    model = Recogniser().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=flags["lr"])
    dataset = Recordings(flags["data"], frames=1024)
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=4, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    criterion = nn.MSELoss()
    for epoch in range(flags["epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        for step, (spectra, target) in enumerate(batches):
            with torch.autocast("xla", dtype=torch.bfloat16):
                loss = criterion(model(spectra), target) / flags["accumulate"]
            loss.backward()
            if (step + 1) % flags["accumulate"] == 0:
                for p in model.parameters():
                    p.grad = xm.all_reduce(xm.REDUCE_SUM, p.grad, scale=1.0 / xr.world_size())
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
        xm.save(model.state_dict(), os.path.join(flags["out"], f"epoch{epoch}.pt"))
        xm.rendezvous("saved")
    xm.master_print("done")


if __name__ == "__main__":
    FLAGS = {"seed": 7, "lr": 1e-4, "epochs": 20, "accumulate": 4, "data": "wav", "out": "runs"}
    xmp.spawn(train, args=(FLAGS,))
