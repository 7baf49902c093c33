"""Small programs for ``xladoctor verify``: ``python verify_program.py CASE``."""

import sys

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch_xla.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.inner = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.3)
        self.body = nn.Linear(32, 32)
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        h = self.drop(self.norm(self.inner(x)).relu())
        if self.case == "healthy":
            h = checkpoint(lambda value: self.drop(self.body(value)), h)
            h = h + 0.1 * torch.randn_like(h)
        else:
            h = self.body(h)
        if self.case == "cut":
            h = h - xm.all_reduce("sum", h.mean(), scale=1.0 / xr.world_size())  # line cut
        return self.head(h)


def loader_of(batch):
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    sampler = DistributedSampler(data, num_replicas=xr.world_size(), rank=xr.global_ordinal())
    return DataLoader(data, batch_size=batch, sampler=sampler, drop_last=True)


def train(case, device, batches, model, optimizer, accumulate=1):
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for at, (x, y) in enumerate(batches):
        if case == "loose":
            x = torch.randn(8, 16).to(device)
            y = (x.sum(1) > 0).long()
        reduction = "sum" if case == "summed" else "mean"
        loss = nn.functional.cross_entropy(model(x), y, reduction=reduction)
        if case == "own-heads":
            own = model.own(torch.ones(2, 4, device=device) * (1 + xr.global_ordinal()))
            loss = loss + (own - own.detach()).sum()  # its gradient is the core's own
        (loss / accumulate).backward()  # line backward
        if (at + 1) % accumulate:
            continue
        if case == "reduced-late":
            xm.reduce_gradients(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # line late
        elif case == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # line clip
            xm.optimizer_step(optimizer)
        elif case == "unreduced":
            optimizer.step()  # line step
        else:
            xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        torch_xla.sync()
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                average[name].mul_(0.9).add_(value.detach(), alpha=0.1)


def main(index, case):
    device = torch_xla.device()
    if case == "seeded-apart":
        torch.manual_seed(index)
    else:
        torch.manual_seed(1)
    model = Net(case).to(device)
    if case == "own-heads":
        import xladoctor

        model.own = nn.Linear(4, 4).to(device)
        xladoctor.cores_differ_on_purpose(model.own)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002 * xr.world_size())
    if case == "random":
        import time

        with torch.no_grad():
            model.inner.weight.add_(time.time() % 1)
    if case == "fails":
        raise ValueError("on purpose")
    if case == "idle":
        return
    if case == "loose":
        train(case, device, [(None, None)] * 3, model, optimizer)
    else:
        batches = pl.MpDeviceLoader(loader_of(8), device)
        accumulate = 2 if case in ("healthy", "reduced-late") else 1
        train(case, device, batches, model, optimizer, accumulate)
    xm.rendezvous("end")


if __name__ == "__main__":
    torch_xla.launch(main, args=(sys.argv[1],))
