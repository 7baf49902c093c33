"""Lightning with a step of its own: manual accumulation, a schedule, figures of all cores."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Letters(pl.LightningModule):
    def __init__(self, classes=47):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2))
        self.head = nn.Linear(64, classes)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("val_loss", F.cross_entropy(self(images), labels), sync_dist=True)

    def on_validation_epoch_end(self):
        self.print("validated")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader(split):
    data = datasets.EMNIST(
        "data", "balanced", train=split == "train", transform=transforms.ToTensor()
    )
    return DataLoader(data, batch_size=128, shuffle=split == "train", num_workers=4, drop_last=True)


if __name__ == "__main__":
    pl.seed_everything(3)
    trainer = pl.Trainer(
        accelerator="tpu", devices="auto", max_epochs=3, gradient_clip_val=1.0, log_every_n_steps=50
    )
    trainer.fit(Letters(), loader("train"), loader("test"))
