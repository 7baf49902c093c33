"""Gestures in 1D signals with Lightning on TPU cores: as_found.py, treated for Lightning 2.6.

    pip install "lightning>=2.6"               # xladoctor does not install it
    python treated.py                          # the size of as_found.py, on all TPU cores
    python treated.py --small                  # less of everything

What changed against as_found.py, and why, is in the README of this folder.
"""

import argparse

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

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


class GestureData(L.LightningDataModule):
    """Plain loaders: Lightning adds the distributed sampler and the device loader."""

    def __init__(self, flags: argparse.Namespace) -> None:
        super().__init__()
        self.flags = flags

    def make_loader(self, signals: int, seed: int, shuffle: bool) -> DataLoader:
        return DataLoader(
            GestureDataset(signals, self.flags.length, seed),
            batch_size=self.flags.batch_size,
            shuffle=shuffle,
            drop_last=True,
            num_workers=self.flags.workers,
            persistent_workers=self.flags.workers > 0,
        )

    def train_dataloader(self) -> DataLoader:
        return self.make_loader(self.flags.signals, seed=1, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self.make_loader(self.flags.signals // 5, seed=2, shuffle=False)


def conv(c_in: int, c_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(c_in, c_out, 7, stride, 3), nn.BatchNorm1d(c_out), nn.ReLU())


class GestureModel(L.LightningModule):
    """Three convolutions; nothing in a step reads a value on the host."""

    def __init__(self, width: int, lr: float, epochs: int) -> None:
        super().__init__()
        self.lr = lr
        self.epochs = epochs
        self.features = nn.Sequential(
            conv(CHANNELS, width, 1), conv(width, width * 2, 2), conv(width * 2, width * 4, 2)
        )
        self.head = nn.Linear(width * 4, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean(2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        # Kept on the device and read once, when the epoch is over.
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        accuracy = (logits.argmax(1) == y).float().mean()
        self.log("val_loss", F.cross_entropy(logits, y), sync_dist=True)
        self.log("val_acc", accuracy, sync_dist=True)

    def configure_optimizers(self):
        lr = self.lr * self.trainer.world_size
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main(flags: argparse.Namespace) -> None:
    L.seed_everything(flags.seed)
    checkpoint = ModelCheckpoint(monitor="val_loss", filename="gesture-{epoch}-{val_loss:.3f}")
    trainer = L.Trainer(
        accelerator="tpu",
        devices=flags.devices,
        precision="32-true" if flags.small else "bf16-true",
        max_epochs=flags.epochs,
        enable_progress_bar=False,
        log_every_n_steps=50,
        callbacks=[checkpoint, EarlyStopping("val_loss", patience=3)],
        logger=CSVLogger("logs"),
    )
    trainer.fit(GestureModel(flags.width, flags.lr, flags.epochs), GestureData(flags))
    values = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
    print("best:", checkpoint.best_model_path, values)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="a size that a CPU does in seconds")
    parser.add_argument("--devices", type=int, default=8, help="TPU cores of this machine")
    parser.add_argument("--signals", type=int, default=50_000)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=128, help="signals per core")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=2021)
    small = {"signals": 640, "length": 64, "width": 8, "batch_size": 16}
    if parser.parse_known_args()[0].small:
        parser.set_defaults(**small, workers=0, epochs=2)
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_flags())
