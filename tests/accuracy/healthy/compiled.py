"""One core: a step compiled by torch_xla's backend, a pure block, a checkpoint that goes on."""

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch import nn
from torch.utils.data import DataLoader
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.experimental.distributed_checkpoint import CheckpointManager, prime_optimizer

from project.data import Windows


def noisy(hidden):
    return F.dropout(F.gelu(hidden), 0.1)


pure_noisy = assume_pure(noisy, add_rng_seed_argument=True)


class Forecast(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.last = nn.Linear(width, 8)

    def forward(self, windows):
        return self.last(F.gelu(self.first(windows)))


def restore(manager, model, optimizer):
    steps = manager.all_steps()
    if steps:
        prime_optimizer(optimizer)
        state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
        manager.restore(max(steps), state)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])


def main():
    torch.manual_seed(2)
    device = torch_xla.device()
    model = Forecast().to(device)
    fast = torch.compile(model, backend="openxla")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    manager = CheckpointManager("checkpoints", save_interval=100)
    restore(manager, model, optimizer)
    loader = DataLoader(Windows(), batch_size=64, shuffle=True, num_workers=2, drop_last=True)
    for step, (windows, targets) in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        loss = F.mse_loss(fast(windows), targets)
        loss.backward()
        optimizer.step()
        manager.save(step, {"model": model.state_dict(), "optim": optimizer.state_dict()})


if __name__ == "__main__":
    main()
