"""Gestures in 1D signals: treated.py, moved to TorchTPU, with a loop in the place of Lightning.

    python on_torchtpu.py --small              # one process, one TPU
    eval "$(python -m torch.tpu.distributed)"  # what the processes have to agree on, then:
    torchrun --nproc-per-node=8 on_torchtpu.py

Lightning has no accelerator for TorchTPU that is published. What stands where,
and how much of it was run: docs/guides/torchtpu.md.
"""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CHANNELS = 6
CLASSES = 12


class GestureDataset(Dataset):
    """Invented signals of one length: shorter ones are padded here, so no batch has its own shape."""

    def __init__(self, signals: int, length: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, signals)
        self.shifts = rng.random(signals, dtype=np.float32) * 6
        self.lengths = rng.integers(length // 2, length + 1, signals)
        self.seed = seed
        self.time = np.arange(length, dtype=np.float32) / length

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng((self.seed, index))
        label = int(self.labels[index])
        phase = np.arange(CHANNELS, dtype=np.float32)[:, None] + self.shifts[index]
        signal = np.sin(2 * np.pi * (1 + label) * self.time + phase)
        signal += 0.5 * rng.standard_normal(signal.shape, dtype=np.float32)
        signal[:, self.lengths[index] :] = 0
        return torch.from_numpy(signal), label


def conv(c_in: int, c_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(c_in, c_out, 7, stride, 3), nn.BatchNorm1d(c_out), nn.ReLU())


class GestureNet(nn.Module):
    """Three convolutions; nothing in a step reads a value on the host."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(CHANNELS, width, 1), conv(width, width * 2, 2), conv(width * 2, width * 4, 2)
        )
        self.head = nn.Linear(width * 4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean(2))


#: Set by torchrun; without it the program is one process on one TPU.
CORES = int(os.environ.get("WORLD_SIZE", "1"))
RANK = int(os.environ.get("RANK", "0"))


def mean_over_cores(values: torch.Tensor) -> list[float]:
    """Means of all processes, the same on each of them: one read."""
    if CORES > 1:
        dist.all_reduce(values)
    return (values / CORES).tolist()


def on_all_cores(model: nn.Module) -> nn.Module:
    """The model with the weights of the first process, and gradients that backward() averages."""
    return DistributedDataParallel(model) if CORES > 1 else model


def save(model: nn.Module, path: str) -> None:
    """Weights from the host, by one process."""
    model = getattr(model, "module", model)
    if RANK == 0:
        torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, path)


def train_epoch(model, loader, optimizer, device, dtype):
    """One epoch; the loss stays on the device until the epoch is over."""
    model.train()
    total = torch.zeros((), device=device)
    for signals, labels in loader:
        signals, labels = signals.to(device, dtype), labels.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(signals), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return mean_over_cores((total / len(loader)).reshape(1))[0]


@torch.no_grad()
def validate(model, loader, device, dtype):
    """The loss and the share of right labels over the signals of all cores."""
    model.eval()
    total = torch.zeros(2, device=device)
    for signals, labels in loader:
        signals, labels = signals.to(device, dtype), labels.to(device)
        logits = model(signals)
        right = (logits.argmax(1) == labels).float().mean()
        total += torch.stack([F.cross_entropy(logits, labels).float(), right])
    return mean_over_cores(total / len(loader))


def make_loader(flags, signals: int, seed: int, shuffle: bool) -> DataLoader:
    dataset = GestureDataset(signals, flags.length, seed)
    sampler = DistributedSampler(
        dataset, num_replicas=CORES, rank=RANK, shuffle=shuffle, drop_last=True
    )
    return DataLoader(
        dataset,
        batch_size=flags.batch_size,
        sampler=sampler,
        num_workers=flags.workers,
        persistent_workers=flags.workers > 0,
        drop_last=True,
    )


def main(flags: argparse.Namespace) -> None:
    torch.manual_seed(flags.seed)
    device = torch.device("tpu")
    dtype = torch.float32 if flags.small else torch.bfloat16
    model = on_all_cores(GestureNet(flags.width).to(device, dtype))
    # The gradients of all cores are averaged: a step of 8 cores sees 8 times the signals.
    optimizer = torch.optim.Adam(model.parameters(), lr=flags.lr * CORES)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, flags.epochs)
    train_loader = make_loader(flags, flags.signals, seed=1, shuffle=True)
    valid_loader = make_loader(flags, flags.signals // 5, seed=2, shuffle=False)

    best, waited = float("inf"), 0
    for epoch in range(flags.epochs):
        train_loader.sampler.set_epoch(epoch)
        train_loss = train_epoch(model, train_loader, optimizer, device, dtype)
        scheduler.step()
        valid_loss, accuracy = validate(model, valid_loader, device, dtype)
        if RANK == 0:
            print(
                f"epoch {epoch + 1} loss {train_loss:.4f} valid loss {valid_loss:.4f} "
                f"accuracy {accuracy:.3f}"
            )
        # valid_loss is the mean of all cores, so all of them stop at the same epoch.
        waited = 0 if valid_loss < best else waited + 1
        if valid_loss < best and flags.save:
            save(model, f"{flags.save}_best.bin")
        best = min(best, valid_loss)
        if waited >= 3:
            break


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in seconds")
    parser.add_argument("--signals", type=int, default=50_000)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=128, help="signals per core")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--save", metavar="STEM", help="where to write the best model")
    small = {"signals": 640, "length": 64, "width": 8, "batch_size": 16}
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small, workers=0, epochs=2)
    return parser.parse_args()


if __name__ == "__main__":
    if CORES > 1:
        dist.init_process_group("tpu_dist")
    main(parse_flags())
