#!/usr/bin/env python
# coding: utf-8

# Objects on a table, mask + depth. Second try: all 8 cores of the TPU.

# In[1]:

import os
import gc
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
from tqdm import tqdm

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp

flags = dict(seed=1, epochs=5, batch_size=32, size=128, n_train=10000, n_valid=1000, lr=1e-3, width=32)


# In[2]:

class TableDataset(Dataset):
    def __init__(self, n, offset=0):
        self.n, self.offset = n, offset

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.RandomState(self.offset + i)
        s = flags['size']
        yy, xx = np.mgrid[:s, :s] / s
        depth = 1 + yy
        image = np.stack([0.4 + 0.2 * yy, 0.3 + 0 * yy, 0.2 + 0.1 * xx])
        mask = np.zeros((s, s))
        for _ in range(rng.randint(1, 5)):
            cx, cy, r, d = rng.rand(), rng.rand(), 0.05 + 0.1 * rng.rand(), 0.3 + 0.6 * rng.rand()
            disc = (xx - cx) ** 2 + (yy - cy) ** 2 < r ** 2
            mask[disc] = 1
            depth[disc] = d
            image[:, disc] = rng.rand(3, 1) * (1.3 - d)
        image += 0.05 * rng.randn(3, s, s)
        depth[rng.rand(s, s) < 0.1] = 0        # the sensor sees nothing here
        return (torch.tensor(image, dtype=torch.float32), torch.tensor(mask[None], dtype=torch.float32),
                torch.tensor(depth[None], dtype=torch.float32))


# In[3]:

class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Up(nn.Module):
    def __init__(self, cin, cskip, cout):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
        self.conv = ResBlock(cin + cskip, cout)

    def forward(self, x, skip):
        return self.conv(torch.cat([self.up(x), skip], 1))


class ResUNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.d1 = ResBlock(3, w)
        self.d2 = ResBlock(w, w * 2, 2)
        self.d3 = ResBlock(w * 2, w * 4, 2)
        self.d4 = ResBlock(w * 4, w * 8, 2)
        self.u3 = Up(w * 8, w * 4, w * 4)
        self.u2 = Up(w * 4, w * 2, w * 2)
        self.u1 = Up(w * 2, w, w)
        self.mask_head = nn.Conv2d(w, 1, 1)
        self.depth_head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        s1 = self.d1(x)
        s2 = self.d2(s1)
        s3 = self.d3(s2)
        h = self.u3(self.d4(s3), s3)
        h = self.u1(self.u2(h, s2), s1)
        return self.mask_head(h), self.depth_head(h)


# In[4]:

class MixedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCEWithLogitsLoss()

    def forward(self, pred_mask, mask, pred_depth, depth):
        known = depth > 0
        depth_loss = F.l1_loss(pred_depth[known], depth[known])
        return self.bce(pred_mask, mask) + depth_loss


def iou_counts(pred_mask, mask):
    pred = (pred_mask > 0).long()
    return torch.bincount((2 * mask.long() + pred).view(-1), minlength=4)


def train_fn(loader, model, criterion, optimizer, device, epoch):
    model.train()
    total_loss = 0.
    counts = 0
    bar = tqdm(loader)
    for i, (image, mask, depth) in enumerate(bar):
        optimizer.zero_grad()
        pred_mask, pred_depth = model(image)
        loss = criterion(pred_mask, mask, pred_depth, depth)
        if torch.isnan(loss):
            print('nan loss, skipping batch', i)
            continue
        loss.backward()
        optimizer.step()
        total_loss += float(loss)
        counts = counts + iou_counts(pred_mask, mask)
        bar.set_postfix(loss=f'{loss:.4f}')
    tn, fp, fn, tp = counts.tolist()
    print(f'[{xm.get_ordinal()}] epoch {epoch} loss {total_loss / len(loader):.4f} iou {tp / (tp + fp + fn):.4f}')
    return total_loss / len(loader)


def valid_fn(loader, model, criterion, device):
    model.eval()
    losses = []
    with torch.no_grad():
        for image, mask, depth in loader:
            pred_mask, pred_depth = model(image)
            losses.append(criterion(pred_mask, mask, pred_depth, depth).item())
    return np.mean(losses)


def map_fn(index, flags):
    torch.manual_seed(flags['seed'])
    device = xm.xla_device()
    train_loader = DataLoader(TableDataset(flags['n_train']), batch_size=flags['batch_size'], shuffle=True,
                              num_workers=4)
    valid_loader = DataLoader(TableDataset(flags['n_valid'], 10 ** 6), batch_size=flags['batch_size'])
    model = ResUNet(flags['width']).to(device)
    criterion = MixedLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=flags['lr'])
    best = 1e9
    for epoch in range(flags['epochs']):
        train_device_loader = pl.ParallelLoader(train_loader, [device]).per_device_loader(device)
        train_fn(train_device_loader, model, criterion, optimizer, device, epoch)
        valid_device_loader = pl.ParallelLoader(valid_loader, [device]).per_device_loader(device)
        valid_loss = valid_fn(valid_device_loader, model, criterion, device)
        if index == 0:
            valid_loss = xm.mesh_reduce('valid_loss', valid_loss, np.mean)
            print('valid loss', valid_loss)
        if valid_loss < best:
            best = valid_loss
            xm.save(model.state_dict(), 'resunet.pth')
            xm.rendezvous('saved')
        gc.collect()
    print(met.metrics_report())


xmp.spawn(map_fn, args=(flags,), nprocs=8, start_method='fork')
