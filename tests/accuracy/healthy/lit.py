"""Lightning on TPUs."""

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Data(L.LightningDataModule):
    def __init__(self, batch_size=128):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set = datasets.FashionMNIST("data", transform=transforms.ToTensor())
        self.valid_set = datasets.FashionMNIST("data", train=False, transform=transforms.ToTensor())

    def train_dataloader(self):
        return DataLoader(
            self.train_set, batch_size=self.batch_size, shuffle=True, num_workers=4, drop_last=True
        )

    def val_dataloader(self):
        return DataLoader(self.valid_set, batch_size=self.batch_size, num_workers=4, drop_last=True)


class Clothes(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        outputs = self(images)
        accuracy = (outputs.argmax(1) == labels).float().mean()
        self.log("accuracy", accuracy, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(42)
    keep = ModelCheckpoint(monitor="accuracy", mode="max")
    trainer = L.Trainer(
        accelerator="tpu",
        devices="auto",
        max_epochs=5,
        precision="bf16-true",
        callbacks=[keep],
        log_every_n_steps=100,
    )
    trainer.fit(Clothes(), datamodule=Data())


if __name__ == "__main__":
    main()
