"""K-fold image classification with an EfficientNet-like net: treated.py, moved to TorchTPU.

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
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 5
# channels, blocks and stride of each stage
STAGES = ((16, 1, 1), (24, 2, 2), (40, 2, 2), (80, 3, 2), (112, 3, 1))
SMALL_STAGES = ((8, 1, 1), (12, 1, 2))


class LeafDataset(Dataset):
    """Invented leaves, stripes on green: the class is the direction of the stripes."""

    def __init__(self, indices: np.ndarray, labels: np.ndarray, size: int, train: bool) -> None:
        self.indices = indices
        self.labels = labels
        self.train = train
        yy, xx = np.mgrid[:size, :size].astype(np.float32) / size
        angles = [np.pi * label / CLASSES for label in range(CLASSES)]
        self.stripes = [np.sin(25 * (xx * np.cos(a) + yy * np.sin(a))) for a in angles]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        index = int(self.indices[position])
        label = int(self.labels[index])
        noise = np.random.default_rng(index).standard_normal(
            (3, *self.stripes[label].shape), dtype=np.float32
        )
        image = torch.from_numpy(0.3 * noise)
        image[1] += torch.from_numpy(self.stripes[label])
        if self.train and torch.rand(()) < 0.5:  # a CPU tensor: this runs in the data loader
            image = image.flip(1, 2)
        return image, label


def fold_indices(images: int, folds: int, fold: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the images to train on and to validate on; the same on every core."""
    parts = np.array_split(np.random.default_rng(seed).permutation(images), folds)
    train = np.concatenate([part for number, part in enumerate(parts) if number != fold])
    return train, parts[fold]


class SqueezeExcite(nn.Module):
    """Scales each channel by what the whole image says about it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, max(channels // 16, 1), 1)
        self.excite = nn.Conv2d(max(channels // 16, 1), channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = nn.functional.silu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.excite(weight))


class MBConv(nn.Module):
    """Expand, convolve each channel by itself, weigh, contract."""

    def __init__(self, c_in: int, c_out: int, stride: int, expand: int = 4) -> None:
        super().__init__()
        c = c_in * expand
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c, 1, bias=False),
            nn.BatchNorm2d(c),
            nn.SiLU(),
            nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False),
            nn.BatchNorm2d(c),
            nn.SiLU(),
            SqueezeExcite(c),
            nn.Conv2d(c, c_out, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        self.skip = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        return out + x if self.skip else out


class LeafNet(nn.Module):
    """A stem, the stages and one linear layer."""

    def __init__(self, stages: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__()
        c_in = stages[0][0]
        layers = [nn.Conv2d(3, c_in, 3, 2, 1, bias=False), nn.BatchNorm2d(c_in), nn.SiLU()]
        for c_out, blocks, stride in stages:
            for block in range(blocks):
                layers.append(MBConv(c_in, c_out, stride if block == 0 else 1))
                c_in = c_out
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(c_in, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


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


def train_epoch(model, loader, criterion, optimizer, device, max_norm):
    """One epoch; sums stay on the device, so no step waits for the host.

    Returns:
        The mean loss over the steps of all cores, the same number on each of them.
    """
    model.train()
    total = torch.zeros((), device=device)
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), targets)
        loss.backward()
        # backward() has averaged the gradients over the processes: the norm is that of all.
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        total += loss.detach()
    return sum_over_cores([total.item() / len(loader)], device)[0] / CORES


@torch.no_grad()
def validate(model, loader, device):
    """The share of right answers over the images of all cores."""
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    seen = 0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        right += (model(images).argmax(1) == targets).sum()
        seen += len(targets)
    return sum_over_cores([right.item() / seen], device)[0] / CORES


def make_loader(dataset: Dataset, flags, shuffle: bool) -> DataLoader:
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


def train_fold(flags, fold, device):
    torch.manual_seed(flags.seed + fold)
    labels = np.random.default_rng(flags.seed).integers(0, CLASSES, flags.images)
    train_indices, valid_indices = fold_indices(flags.images, flags.folds, fold, flags.seed)
    train_loader = make_loader(LeafDataset(train_indices, labels, flags.size, True), flags, True)
    valid_loader = make_loader(LeafDataset(valid_indices, labels, flags.size, False), flags, False)

    model = LeafNet(SMALL_STAGES if flags.small else STAGES).to(device)
    model = on_all_cores(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=flags.lr * CORES)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)

    best = 0.0
    for epoch in range(flags.epochs):
        train_loader.sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, criterion, optimizer, device, flags.max_norm)
        accuracy = validate(model, valid_loader, device)
        # The accuracy of all cores: with its own, each core would choose its own learning rate.
        scheduler.step(accuracy)
        if RANK == 0:
            print(f"fold {fold} epoch {epoch + 1} loss {loss:.4f} accuracy {accuracy:.3f}")
        if accuracy > best and flags.save:
            save(model, f"{flags.save}_fold{fold}.pt")
        best = max(best, accuracy)
    return best


def main(flags):
    device = torch.device("tpu")
    # One process for all folds: the graphs of the first are compiled, the others reuse them.
    scores = [train_fold(flags, fold, device) for fold in range(flags.folds)]
    if RANK == 0:
        print(f"accuracy over {flags.folds} folds: {np.mean(scores):.3f}")


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in seconds")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=224, help="pixels of an image's side")
    parser.add_argument("--batch-size", type=int, default=16, help="images per core")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--max-norm", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=719)
    parser.add_argument("--save", metavar="STEM", help="where to write the best model of each fold")
    small = {"images": 384, "size": 32, "batch_size": 8}
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small, folds=2, workers=0, epochs=2, lr=5e-4)
    return parser.parse_args()


if __name__ == "__main__":
    if CORES > 1:
        dist.init_process_group("tpu_dist")
    main(parse_flags())
