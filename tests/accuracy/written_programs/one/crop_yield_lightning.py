"""County yields from Sentinel series (Lightning, v4-8)."""
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, WEEKS, CROPS = 12, 36, 4
RUN = Path("runs/yield")
best_so_far = float("inf")


@dataclass(frozen=True)
class Settings:
    root: str = "data/yield"
    batch: int = 64
    width: int = 192
    layers: int = 4
    lr: float = 6e-4
    epochs: int = 30
    smooth: float = 0.98


@dataclass
class TrainState:
    counties: torch.Tensor
    drift: float = 0.0
    notes: list = field(default_factory=list)


class Counties(Dataset):
    def __init__(self, settings, part):
        self.series = np.load(f"{settings.root}/{part}_series.npy", mmap_mode="r")
        self.yields = np.load(f"{settings.root}/{part}_yields.npy").astype(np.float32)
        self.crops = np.load(f"{settings.root}/{part}_crops.npy").astype(np.int64)

    def __len__(self):
        return len(self.yields)

    def __getitem__(self, i):
        return torch.from_numpy(self.series[i].astype(np.float32)), self.crops[i], self.yields[i]


class CountyData(L.LightningDataModule):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def setup(self, stage):
        self.train_rows, self.dev_rows = Counties(self.settings, "train"), Counties(self.settings, "dev")

    def train_dataloader(self):
        return DataLoader(self.train_rows, self.settings.batch, shuffle=True, drop_last=True, num_workers=4)

    def val_dataloader(self):
        return DataLoader(self.dev_rows, self.settings.batch, num_workers=2)


class Encoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.bands, self.crop = nn.Linear(BANDS, s.width), nn.Embedding(CROPS, s.width)
        self.weeks = nn.Parameter(torch.zeros(WEEKS, s.width))
        layer = nn.TransformerEncoderLayer(s.width, 8, 4 * s.width, batch_first=True, norm_first=True)
        self.stack = nn.TransformerEncoder(layer, s.layers, enable_nested_tensor=False)
        self.head = nn.Linear(s.width, 1)

    def forward(self, series, crop):
        x = self.bands(series) + self.weeks + self.crop(crop).unsqueeze(1)
        return self.head(self.stack(x).mean(1)).squeeze(-1)


class YieldModule(L.LightningModule):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.net = Encoder(settings)
        self.register_buffer("slow", torch.zeros(CROPS))

    @cached_property
    def rank(self):
        return xr.global_ordinal()

    @property
    def alone(self):
        return self.trainer.world_size == 1

    def on_fit_start(self):
        self.state = TrainState(counties=torch.zeros(CROPS, device=self.device))
        if xm.is_master_ordinal:
            self.state.notes.append(f"{sum(p.numel() for p in self.parameters()):,} weights")

    def _errors(self, batch):
        series, crop, target = batch
        guess = self.net(series, crop)
        return nn.functional.smooth_l1_loss(guess, target, reduction="none"), crop

    def training_step(self, batch, batch_idx):
        error, crop = self._errors(batch)
        loss = error.mean()
        hot = nn.functional.one_hot(crop, num_classes=CROPS).float()
        self.state.counties += hot.sum(0)
        with torch.no_grad():
            per_crop = (hot * error.unsqueeze(1)).sum(0) / hot.sum(0).clamp(min=1)
            self.slow.lerp_(per_crop, 1 - self.settings.smooth)
        self._tell(loss)
        return loss

    def _tell(self, loss):
        self.log("loss", loss, prog_bar=True)
        self.log("scaled", loss * 10, on_step=False, on_epoch=True)

    def on_train_epoch_end(self):
        xm.all_reduce(xm.REDUCE_SUM, self.state.counties)
        shares = (self.state.counties / self.state.counties.sum()).tolist()
        if self.rank == 0:
            self.print("crops seen:", " ".join(f"{s:.3f}" for s in shares))
        self.state.counties.zero_()

    def on_validation_epoch_start(self):
        self.squares = torch.zeros(2, device=self.device)

    def validation_step(self, batch, batch_idx):
        error, _ = self._errors(batch)
        self.squares += torch.stack([error.sum(), torch.ones_like(error).sum()])
        self.log("dev", error.mean(), sync_dist=True, on_step=False, on_epoch=True)

    def on_validation_epoch_end(self):
        global best_so_far
        if self.trainer.sanity_checking:
            return
        both = self.all_gather(self.squares).sum(0) if not self.alone else self.squares
        total, count = both.tolist()
        mean = total / count
        record = {"epoch": self.current_epoch, "mean": mean}
        with open(RUN / "dev.json", "w") as out:
            json.dump(record, out)
        if mean < best_so_far:
            best_so_far = mean
            self.trainer.save_checkpoint(RUN / "best.ckpt")

    def configure_optimizers(self):
        solver = torch.optim.AdamW(self.parameters(), lr=self.settings.lr)
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(solver, self.settings.epochs)
        return {"optimizer": solver, "lr_scheduler": plan}


class Drift(Callback):
    """Stores the slow errors of the crops as they stood in the middle of each epoch."""

    def __init__(self, every=400):
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % self.every != self.every // 2:
            return
        if trainer.is_global_zero:
            spread = module.all_gather(module.slow)
            module.state.drift = spread.std(0).max().item()
            module.state.notes.append(f"{trainer.global_step}: {module.state.drift:.4f}")


def main():
    settings = Settings()
    RUN.mkdir(parents=True, exist_ok=True)
    L.seed_everything(17)
    module, data = YieldModule(settings), CountyData(settings)
    saver = ModelCheckpoint(RUN, monitor="dev", filename="{epoch}-{dev:.3f}")
    trainer = L.Trainer(accelerator="tpu", devices="auto", max_epochs=settings.epochs, precision="32-true", log_every_n_steps=100,
                        callbacks=[saver, LearningRateMonitor("epoch"), Drift()], logger=CSVLogger(RUN))
    trainer.fit(module, data)


if __name__ == "__main__":
    main()
