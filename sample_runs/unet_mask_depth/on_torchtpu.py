"""A ResNet-UNet with a mask and a depth head: treated.py, moved to TorchTPU.

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


class TableDataset(Dataset):
    """Invented photographs of discs on a table, with masks and with depths that have holes."""

    def __init__(self, images: int, size: int, seed: int) -> None:
        self.images = images
        self.seed = seed
        self.yy, self.xx = np.mgrid[:size, :size].astype(np.float32) / size

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng((self.seed, index))
        yy, xx = self.yy, self.xx
        depth = 1 + yy
        image = np.stack([0.4 + 0.2 * yy, 0.3 + 0 * yy, 0.2 + 0.1 * xx])
        mask = np.zeros_like(yy)
        for _ in range(rng.integers(1, 5)):
            cx, cy, radius, near = rng.random(4)
            distance = 0.3 + 0.6 * near
            disc = (xx - cx) ** 2 + (yy - cy) ** 2 < (0.05 + 0.1 * radius) ** 2
            mask[disc] = 1
            depth[disc] = distance
            image[:, disc] = rng.random((3, 1)) * (1.3 - distance)
        image += 0.05 * rng.standard_normal(image.shape, dtype=np.float32)
        depth[rng.random(depth.shape) < 0.1] = 0  # the sensor sees nothing here
        return torch.from_numpy(image), torch.from_numpy(mask[None]), torch.from_numpy(depth[None])


class ResBlock(nn.Module):
    """Two 3x3 convolutions around a 1x1 shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Up(nn.Module):
    """Doubles the size and joins what the encoder saw at that size."""

    def __init__(self, c_in: int, c_skip: int, c_out: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(c_in, c_out, 2, stride=2)
        self.conv = ResBlock(c_out + c_skip, c_out)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([self.up(x), skip], 1))


class ResUNet(nn.Module):
    """An encoder of `stages` halvings, the decoder back up, and two heads."""

    def __init__(self, width: int, stages: int) -> None:
        super().__init__()
        channels = [width * 2**stage for stage in range(stages + 1)]
        pairs = list(zip(channels, channels[1:], strict=False))
        self.first = ResBlock(3, width)
        self.downs = nn.ModuleList(ResBlock(c, c_next, 2) for c, c_next in pairs)
        self.ups = nn.ModuleList(Up(c_next, c, c) for c, c_next in reversed(pairs))
        self.mask_head = nn.Conv2d(width, 1, 1)
        self.depth_head = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = [self.first(x)]
        for down in self.downs:
            seen.append(down(seen[-1]))
        h = seen.pop()
        for up in self.ups:
            h = up(h, seen.pop())
        return self.mask_head(h), self.depth_head(h)


def loss_fn(pred_mask, mask, pred_depth, depth):
    """Mask and depth together.

    Pixels of unknown depth weigh nothing, so no shape changes; and an image without any known depth
    gives 0 and not NaN, so no step needs a guard that reads the loss.
    """
    known = (depth > 0).float()
    depth_loss = (known * (pred_depth - depth).abs()).sum() / known.sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(pred_mask, mask) + depth_loss


def overlap(pred_mask, mask):
    """Intersection and union, in pixels, as one tensor on the device."""
    pred = pred_mask > 0
    truth = mask > 0.5
    return torch.stack([(pred & truth).sum(), (pred | truth).sum()])


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
    """One epoch; the mean loss of all cores."""
    model.train()
    total = torch.zeros((), device=device)
    for image, mask, depth in loader:
        image, mask, depth = image.to(device), mask.to(device), depth.to(device)
        optimizer.zero_grad()
        pred_mask, pred_depth = model(image)
        loss = loss_fn(pred_mask, mask, pred_depth, depth)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return sum_over_cores([total.item() / len(loader)], device)[0] / CORES


@torch.no_grad()
def validate(model, loader, device):
    """The loss and the intersection over union, over the images of all cores."""
    model.eval()
    total = torch.zeros((), device=device)
    pixels = torch.zeros(2, dtype=torch.int64, device=device)
    for image, mask, depth in loader:
        image, mask, depth = image.to(device), mask.to(device), depth.to(device)
        pred_mask, pred_depth = model(image)
        total += loss_fn(pred_mask, mask, pred_depth, depth)
        pixels += overlap(pred_mask, mask)
    sums = [total.item() / len(loader), *pixels.tolist()]
    loss, both, either = sum_over_cores(sums, device)
    return loss / CORES, both / max(either, 1)


def make_loader(flags, images: int, seed: int, shuffle: bool) -> DataLoader:
    dataset = TableDataset(images, flags.size, seed)
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
    train_loader = make_loader(flags, flags.images, seed=1, shuffle=True)
    valid_loader = make_loader(flags, flags.images // 4, seed=2, shuffle=False)
    model = ResUNet(flags.width, flags.stages).to(device)
    model = on_all_cores(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=flags.lr)

    best = float("inf")
    for epoch in range(flags.epochs):
        train_loader.sampler.set_epoch(epoch)
        train_loss = train_epoch(model, train_loader, optimizer, device)
        valid_loss, iou = validate(model, valid_loader, device)
        if RANK == 0:
            print(
                f"epoch {epoch + 1} loss {train_loss:.4f} valid loss {valid_loss:.4f} iou {iou:.3f}"
            )
        # valid_loss is the mean of all cores, so all of them take the same branch.
        if valid_loss < best and flags.save:
            save(model, flags.save)
        best = min(best, valid_loss)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in seconds")
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage")
    parser.add_argument("--stages", type=int, default=3, help="how often the encoder halves")
    parser.add_argument("--size", type=int, default=128, help="pixels of an image's side")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=32, help="images per core")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="FILE", help="where to write the best model")
    small = {"width": 4, "stages": 2, "size": 32, "images": 256, "batch_size": 4}
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small, workers=0, epochs=2, lr=5e-3)
    return parser.parse_args()


if __name__ == "__main__":
    if CORES > 1:
        dist.init_process_group("tpu_dist")
    main(parse_flags())
