"""The notebook of as_found.py with only what stopped it on torch_xla 2.9 replaced.

It trains, and it is still slow: the faults of as_found.py's loops are all in here, and the counts of
positive slices that its author added later. `make demo` profiles this file.

    python runnable.py                         # the size of as_found.py, on a TPU
    python runnable.py --small                 # seconds on a CPU
"""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

LABELS = ['epidural', 'intraparenchymal', 'intraventricular', 'subarachnoid', 'subdural', 'any']


class SliceDataset(Dataset):
    """One fake CT slice: a skull, and for each label a bright spot in its own place."""

    def __init__(self, n, size, seed=0):
        self.n = n
        self.size = size
        rng = np.random.RandomState(seed)
        self.labels = (rng.rand(n, len(LABELS)) < 0.2).astype(np.float32)
        self.labels[:, -1] = self.labels[:, :-1].max(1)

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        s = self.size
        yy, xx = np.mgrid[:s, :s] / s
        img = np.random.RandomState(idx).rand(s, s) * 80
        img[(yy - .5) ** 2 + (xx - .5) ** 2 > .2] = 0
        for k in range(len(LABELS) - 1):
            if self.labels[idx, k]:
                img[(yy - .3 - .08 * k) ** 2 + (xx - .6 + .08 * k) ** 2 < .004] += 120
        windows = [np.clip((img - c + w / 2) / w, 0, 1) for c, w in ((40, 80), (80, 200), (40, 380))]
        return torch.tensor(np.stack(windows), dtype=torch.float), torch.tensor(self.labels[idx])


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.short = None
        if stride != 1 or c_in != c_out:
            self.short = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.short is None else self.short(x)))


class SliceNet(nn.Module):
    def __init__(self, layers, width, n_labels):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, c_in = [], width
        for i, n in enumerate(layers):
            for j in range(n):
                blocks.append(BasicBlock(c_in, width * 2 ** i, 2 if i > 0 and j == 0 else 1))
                c_in = width * 2 ** i
        self.blocks = nn.Sequential(*blocks)
        self.drop = nn.Dropout(0.4)
        self.fc = nn.Linear(c_in, n_labels)

    def forward(self, x):
        x = self.blocks(self.stem(x)).mean((2, 3))
        return self.fc(self.drop(x))


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def loss_fn(outputs, targets):
    weights = torch.tensor([1., 1., 1., 1., 1., 2.], device=outputs.device)
    return nn.BCEWithLogitsLoss(weight=weights)(outputs, targets)


def train_fn(epoch, loader, model, optimizer, device):
    model.train()
    trn_loss_meter = AverageMeter()
    positive_meter = AverageMeter()
    labels_per_slice = torch.zeros(len(LABELS) + 1, dtype=torch.long, device=device)
    for batch_idx, (inputs, labels) in enumerate(loader):
        inputs = inputs.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_fn(outputs, labels)
        loss.backward()
        xm.optimizer_step(optimizer)
        trn_loss_meter.update(loss.detach().item(), inputs.size(0))
        # how sure is it on slices that have something?
        positive_meter.update(torch.sigmoid(outputs[labels[:, -1] > 0])[:, -1].mean().item())
        labels_per_slice += torch.bincount(labels.sum(1).long(), minlength=len(LABELS) + 1)
        if batch_idx % 4 == 0:
            print(f'epoch {epoch} batch {batch_idx} loss {trn_loss_meter.avg:.4f} positive {positive_meter.avg:.3f}')
    xm.master_print('labels per slice', labels_per_slice.tolist())
    return trn_loss_meter.avg


def valid_fn(epoch, loader, model):
    model.eval()
    val_loss_meter = AverageMeter()
    hits = 0
    with torch.no_grad():
        for inputs, labels in loader:
            outputs = model(inputs)
            loss = loss_fn(outputs, labels)
            val_loss_meter.update(loss.item(), inputs.size(0))
            preds = torch.sigmoid(outputs).cpu().numpy()
            hits += ((preds > 0.5) == labels.cpu().numpy()).mean() * len(preds)
    xm.master_print(f'epoch {epoch} valid loss {val_loss_meter.avg:.4f} acc {hits / val_loss_meter.count:.4f}')
    return val_loss_meter.avg


def _mp_fn(rank, flags):
    torch.manual_seed(flags.seed)
    train_ds = SliceDataset(flags.n_train, flags.size, seed=1)
    valid_ds = SliceDataset(flags.n_train // 4, flags.size, seed=2)
    train_sampler = DistributedSampler(train_ds, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True)
    valid_sampler = DistributedSampler(valid_ds, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=False)
    train_dl = DataLoader(train_ds, batch_size=flags.batch_size, sampler=train_sampler)
    valid_dl = DataLoader(valid_ds, batch_size=flags.batch_size, sampler=valid_sampler)

    device = torch_xla.device()
    model = SliceNet(flags.layers, flags.width, len(LABELS)).to(device)
    xm.broadcast_master_param(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=flags.lr * xr.world_size())

    for epoch in range(flags.n_epochs):
        start = time.time()
        train_sampler.set_epoch(epoch)
        train_fn(epoch + 1, pl.MpDeviceLoader(train_dl, device), model, optimizer, device)
        valid_fn(epoch + 1, pl.MpDeviceLoader(valid_dl, device), model)
        xm.master_print(f'epoch {epoch + 1}: {time.time() - start:.0f} s')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--small', action='store_true')
    parser.add_argument('--layers', type=int, nargs='+', default=[3, 4, 6, 3])      # resnet34
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--size', type=int, default=256)
    parser.add_argument('--n_train', type=int, default=40000)
    parser.add_argument('--batch_size', type=int, default=128)
    parser.add_argument('--n_epochs', type=int, default=10)
    parser.add_argument('--lr', type=float, default=1e-4)
    parser.add_argument('--seed', type=int, default=42)
    if parser.parse_known_args()[0].small:
        parser.set_defaults(layers=[1, 1, 1], width=4, size=32, n_train=320, batch_size=6, n_epochs=2, lr=1e-3)
    torch_xla.launch(_mp_fn, args=(parser.parse_args(),))
