# %% [code]
# Which of 12 gestures is it? 1D signals, Lightning on a TPU v3-8
# pip install pytorch-lightning==1.5.10 torch_xla-1.9-cp37-cp37m-linux_x86_64.whl

import os
os.environ['XLA_USE_BF16'] = '1'

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

import torch_xla.core.xla_model as xm
import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint, EarlyStopping, XLAStatsMonitor
from pytorch_lightning.loggers import CSVLogger

# %% [code]
class CFG:
    n_train = 50000
    n_valid = 10000
    length = 256
    channels = 6
    n_classes = 12
    width = 64
    batch_size = 100
    lr = 1e-3
    epochs = 10


pl.seed_everything(2021)
device = xm.xla_device()

# %% [code]
class GestureDataset(Dataset):
    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        self.y = rng.randint(0, CFG.n_classes, n)
        self.shift = rng.rand(n) * 6
        self.lengths = rng.randint(CFG.length // 2, CFG.length + 1, n)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        t = np.arange(self.lengths[i]) / CFG.length
        c = np.arange(CFG.channels)[:, None]
        x = np.sin(2 * np.pi * (1 + self.y[i]) * t + c + self.shift[i])
        return torch.tensor(x + 0.5 * np.random.randn(*x.shape)), torch.tensor(self.y[i])


def collate(batch):
    longest = max(x.shape[1] for x, _ in batch)
    xs = torch.stack([F.pad(x, (0, longest - x.shape[1])) for x, _ in batch])
    return xs.float(), torch.stack([y for _, y in batch])


class GestureData(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(GestureDataset(CFG.n_train, 1), batch_size=CFG.batch_size, shuffle=True,
                          collate_fn=collate, num_workers=4)

    def val_dataloader(self):
        return DataLoader(GestureDataset(CFG.n_valid, 2), batch_size=CFG.batch_size, collate_fn=collate,
                          num_workers=4)

# %% [code]
def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv1d(cin, cout, 7, stride, 3), nn.BatchNorm1d(cout), nn.ReLU())


class GestureModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        w = CFG.width
        self.net = nn.Sequential(conv(CFG.channels, w, 1), conv(w, w * 2, 2), conv(w * 2, w * 4, 2),
                                 nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(w * 4, CFG.n_classes))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x.to(device)
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(1) == y).float().mean().item()
        if torch.isnan(loss):
            return None
        self.log('train_loss', loss, on_step=True, prog_bar=True)
        self.log('train_acc', acc, on_step=True, prog_bar=True)
        print('step', batch_idx, 'loss', loss.item())
        return {'loss': loss, 'acc': acc}

    def training_epoch_end(self, outputs):
        print('train loss', torch.stack([o['loss'] for o in outputs]).mean().item())

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        return {'val_loss': F.cross_entropy(logits, y), 'preds': logits.argmax(1).cpu().numpy(), 'y': y.cpu().numpy()}

    def validation_epoch_end(self, outputs):
        preds = np.concatenate([o['preds'] for o in outputs])
        targets = np.concatenate([o['y'] for o in outputs])
        np.save('val_preds.npy', preds)
        self.log('val_loss', torch.stack([o['val_loss'] for o in outputs]).mean())
        self.log('val_acc', float((preds == targets).mean()))

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_idx, optimizer_closure, on_tpu, **kwargs):
        optimizer_closure()
        xm.optimizer_step(optimizer)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=CFG.lr * 8)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG.epochs)]

# %% [code]
model = GestureModel()
checkpoint = ModelCheckpoint(monitor='val_loss', filename='gesture-{epoch}-{val_loss:.3f}')
trainer = pl.Trainer(
    accelerator="tpu",
    devices=8,
    precision=16,
    max_epochs=CFG.epochs,
    progress_bar_refresh_rate=1,
    weights_summary='top',
    checkpoint_callback=True,
    callbacks=[checkpoint, EarlyStopping('val_loss', patience=3), XLAStatsMonitor()],
    logger=CSVLogger('logs'),
)
trainer.fit(model, GestureData())
print('best', checkpoint.best_model_path)
