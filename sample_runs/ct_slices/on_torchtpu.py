"""Multi-label CT slices with a ResNet: treated.py, moved to TorchTPU.

    python on_torchtpu.py --small              # one process, one TPU
    eval "$(python -m torch.tpu.distributed)"  # what the processes have to agree on, then:
    torchrun --nproc-per-node=8 on_torchtpu.py

What stands where, and how much of it was run: docs/guides/torchtpu.md.
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

LABELS = ("epidural", "intraparenchymal", "intraventricular", "subarachnoid", "subdural", "any")
LAYERS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
WINDOWS = ((40, 80), (80, 200), (40, 380))  # centre and width, in Hounsfield units


class SliceDataset(Dataset):
    """Invented CT slices: a head, and for each label a bright spot in its own place."""

    def __init__(self, slices: int, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = (rng.random((slices, len(LABELS))) < 0.2).astype(np.float32)
        self.labels[:, -1] = self.labels[:, :-1].max(1)
        self.seed = seed
        yy, xx = np.mgrid[:size, :size].astype(np.float32) / size
        self.head = (yy - 0.5) ** 2 + (xx - 0.5) ** 2 < 0.2
        places = range(len(LABELS) - 1)
        self.spots = np.stack(
            [(yy - 0.3 - 0.08 * k) ** 2 + (xx - 0.6 + 0.08 * k) ** 2 < 0.004 for k in places]
        ).astype(np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng((self.seed, index))
        image = rng.random(self.head.shape, dtype=np.float32) * 80 * self.head
        image += 120 * np.tensordot(self.labels[index, :-1], self.spots, axes=1)
        windows = [np.clip((image - centre + width / 2) / width, 0, 1) for centre, width in WINDOWS]
        return torch.from_numpy(np.stack(windows)), torch.from_numpy(self.labels[index])


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.short = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.short(x))


class SliceNet(nn.Module):
    """A residual net with one output per label."""

    def __init__(self, layers: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, c_in = [], width
        for stage, count in enumerate(layers):
            for block in range(count):
                c_out = width * 2**stage
                blocks.append(BasicBlock(c_in, c_out, 2 if stage > 0 and block == 0 else 1))
                c_in = c_out
        self.blocks = nn.Sequential(*blocks)
        self.drop = nn.Dropout(0.4)
        self.fc = nn.Linear(c_in, len(LABELS))
        self.register_buffer("weights", torch.tensor([1.0] * (len(LABELS) - 1) + [2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.drop(self.blocks(self.stem(x)).mean((2, 3))))

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(outputs, labels, weight=self.weights)


#: Set by torchrun; without it the program is one process on one TPU.
CORES = int(os.environ.get("WORLD_SIZE", "1"))
RANK = int(os.environ.get("RANK", "0"))


def sum_over_cores(values: list[float], device: torch.device) -> list[float]:
    """Numbers added up over all processes, the same on each of them: one read."""
    total = torch.tensor(values, device=device)
    if CORES > 1:
        dist.all_reduce(total)
    return total.tolist()


def on_all_cores(model: nn.Module) -> nn.Module:
    """The model with the weights of the first process, and gradients that backward() averages."""
    return DistributedDataParallel(model) if CORES > 1 else model


def save(model: nn.Module, path: str) -> None:
    """Weights from the host, by one process."""
    model = getattr(model, "module", model)
    if RANK == 0:
        torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, path)


def train_epoch(model, loader, optimizer, device):
    """One epoch; the mean loss stays on the device until the epoch is over."""
    model.train()
    total = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = model.loss(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return sum_over_cores([total.item() / len(loader)], device)[0] / CORES


@torch.no_grad()
def validate(model, loader, device):
    """The loss and the share of right labels over the slices of all cores."""
    model.eval()
    total = torch.zeros((), device=device)
    right = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        total += model.loss(outputs, labels)
        right += ((outputs > 0) == (labels > 0.5)).float().mean()
    means = [total.item() / len(loader), right.item() / len(loader)]
    return [value / CORES for value in sum_over_cores(means, device)]


def make_loader(flags, slices: int, seed: int, shuffle: bool) -> DataLoader:
    dataset = SliceDataset(slices, flags.size, seed)
    sampler = DistributedSampler(
        dataset,
        num_replicas=CORES,
        rank=RANK,
        shuffle=shuffle,
        drop_last=True,
    )
    return DataLoader(
        dataset,
        batch_size=flags.batch_size,
        sampler=sampler,
        num_workers=flags.workers,
        drop_last=True,
    )


def main(flags):
    torch.manual_seed(flags.seed)
    device = torch.device("tpu")
    model = SliceNet(LAYERS[flags.layers], flags.width).to(device)
    model = on_all_cores(model)
    # The gradients of all cores are averaged: a step of 8 cores sees 8 times the slices.
    optimizer = torch.optim.Adam(model.parameters(), lr=flags.lr * CORES)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, flags.epochs)
    train_loader = make_loader(flags, flags.slices, seed=1, shuffle=True)
    valid_loader = make_loader(flags, flags.slices // 4, seed=2, shuffle=False)

    best, history = float("inf"), []
    for epoch in range(flags.epochs):
        train_loader.sampler.set_epoch(epoch)
        train_loss = train_epoch(model, train_loader, optimizer, device)
        scheduler.step()
        valid_loss, accuracy = validate(model, valid_loader, device)
        history.append((train_loss, valid_loss))
        if RANK == 0:
            print(
                f"epoch {epoch + 1} loss {train_loss:.4f} valid loss {valid_loss:.4f} "
                f"accuracy {accuracy:.3f}"
            )
        # valid_loss is the mean of all cores, so all of them take the same branch.
        if valid_loss < best and flags.save:
            best = valid_loss
            save(model, f"{flags.save}_best.bin")
    if flags.save and RANK == 0:
        np.save(f"{flags.save}_losses.npy", np.array(history))


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in seconds")
    parser.add_argument("--layers", type=int, choices=sorted(LAYERS), default=34)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--size", type=int, default=256, help="pixels of a slice's side")
    parser.add_argument("--slices", type=int, default=40_000)
    parser.add_argument("--batch-size", type=int, default=128, help="slices per core")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--save", metavar="STEM", help="where to write the best model and losses")
    small = {"layers": 10, "width": 4, "size": 32, "slices": 512, "batch_size": 8}
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small, workers=0, epochs=2, lr=1e-3)
    return parser.parse_args()


if __name__ == "__main__":
    if CORES > 1:
        dist.init_process_group("tpu_dist")
    main(parse_flags())
