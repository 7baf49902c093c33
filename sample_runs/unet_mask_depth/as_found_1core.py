#!/usr/bin/env python
# coding: utf-8

# Objects on a table: which pixels belong to an object (mask) and how far away they are (depth).
# Colab, TPU runtime. First try, one core: same code as on the GPU, only the device is different.

# In[1]:

import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader
import torch_xla
import torch_xla.core.xla_model as xm

EPOCHS = 5
BATCH_SIZE = 32
SIZE = 128
N_IMAGES = 10000
LR = 1e-3

device = xm.xla_device()
print('device:', device)


# In[2]:

class TableDataset(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.RandomState(i)
        yy, xx = np.mgrid[:SIZE, :SIZE] / SIZE
        depth = 1 + yy
        image = np.stack([0.4 + 0.2 * yy, 0.3 + 0 * yy, 0.2 + 0.1 * xx])
        mask = np.zeros((SIZE, SIZE))
        for _ in range(rng.randint(1, 5)):
            cx, cy, r, d = rng.rand(), rng.rand(), 0.05 + 0.1 * rng.rand(), 0.3 + 0.6 * rng.rand()
            disc = (xx - cx) ** 2 + (yy - cy) ** 2 < r ** 2
            mask[disc] = 1
            depth[disc] = d
            image[:, disc] = rng.rand(3, 1) * (1.3 - d)
        image += 0.05 * rng.randn(3, SIZE, SIZE)
        depth[rng.rand(SIZE, SIZE) < 0.1] = 0        # the sensor sees nothing here
        return (torch.tensor(image, dtype=torch.float32), torch.tensor(mask[None], dtype=torch.float32),
                torch.tensor(depth[None], dtype=torch.float32))


train_loader = DataLoader(TableDataset(N_IMAGES), batch_size=BATCH_SIZE, shuffle=True, num_workers=4)


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
    def __init__(self, w=32):
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


model = ResUNet().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
bce = nn.BCEWithLogitsLoss()


# In[4]:

for epoch in range(EPOCHS):
    start = time.time()
    total_loss = 0
    model.train()
    for image, mask, depth in train_loader:
        image = image.to(device)
        mask = mask.to(device)
        depth = depth.to(device)
        optimizer.zero_grad()
        pred_mask, pred_depth = model(image)
        known = (depth > 0).float()
        loss = bce(pred_mask, mask) + (known * (pred_depth - depth).abs()).sum() / known.sum()
        loss.backward()
        optimizer.step()
        total_loss += loss
    print('epoch', epoch, 'loss', total_loss / len(train_loader), 'time', time.time() - start)

torch.save(model.state_dict(), 'resunet_1core.pth')
