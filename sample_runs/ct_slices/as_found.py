# -*- coding: utf-8 -*-
"""ct-slices-resnet34-tpu.ipynb

Exported from a notebook. TPU v3-8, torch_xla 1.7.
"""

# In[1]:

import gc
import os
import time
import warnings

os.environ['XLA_USE_BF16'] = "1"
os.environ['XLA_TENSOR_ALLOCATOR_MAXSIZE'] = '100000000'

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.utils.utils as xu

warnings.filterwarnings("ignore")


# In[2]:

class CFG:
    seed = 42
    layers = [3, 4, 6, 3]      # resnet34
    width = 64
    size = 256
    n_train = 40000
    n_valid = 8000
    batch_size = 128
    num_workers = 0
    n_epochs = 10
    lr = 1e-4
    n_labels = 6
    num_tpu_workers = 8


LABELS = ['epidural', 'intraparenchymal', 'intraventricular', 'subarachnoid', 'subdural', 'any']


def seed_everything(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)


seed_everything(CFG.seed)


# In[3]:

class SliceDataset(Dataset):
    """One fake CT slice: a skull, and for each label a bright spot in its own place."""

    def __init__(self, n, seed=0):
        self.n = n
        rng = np.random.RandomState(seed)
        self.labels = (rng.rand(n, CFG.n_labels) < 0.2).astype(np.float32)
        self.labels[:, -1] = self.labels[:, :-1].max(1)

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        s = CFG.size
        yy, xx = np.mgrid[:s, :s] / s
        img = np.random.RandomState(idx).rand(s, s) * 80
        img[(yy - .5) ** 2 + (xx - .5) ** 2 > .2] = 0
        for k in range(CFG.n_labels - 1):
            if self.labels[idx, k]:
                img[(yy - .3 - .08 * k) ** 2 + (xx - .6 + .08 * k) ** 2 < .004] += 120
        windows = [np.clip((img - c + w / 2) / w, 0, 1) for c, w in ((40, 80), (80, 200), (40, 380))]
        return torch.tensor(np.stack(windows), dtype=torch.float), torch.tensor(self.labels[idx])


# In[4]:

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


model = SliceNet(CFG.layers, CFG.width, CFG.n_labels)
mx = xmp.MpModelWrapper(model)


# In[5]:

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


def train_fn(epoch, para_loader, optimizer, device, lr_scheduler):
    model.train()
    trn_loss_meter = AverageMeter()
    for batch_idx, (inputs, labels) in enumerate(para_loader):
        inputs = inputs.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_fn(outputs, labels)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        trn_loss_meter.update(loss.detach().item(), inputs.size(0))
        if batch_idx % 50 == 0:
            print(f'epoch {epoch} batch {batch_idx} loss {trn_loss_meter.avg:.4f}')
        del inputs, labels, outputs, loss
        gc.collect()
    lr_scheduler.step()
    return trn_loss_meter.avg


def valid_fn(epoch, para_loader, device):
    model.eval()
    val_loss_meter = AverageMeter()
    hits = 0
    with torch.no_grad():
        for inputs, labels in para_loader:
            outputs = model(inputs)
            loss = loss_fn(outputs, labels)
            val_loss_meter.update(loss.item(), inputs.size(0))
            preds = torch.sigmoid(outputs).cpu().numpy()
            hits += ((preds > 0.5) == labels.cpu().numpy()).mean() * len(preds)
    print(f'epoch {epoch} valid loss {val_loss_meter.avg:.4f} acc {hits / val_loss_meter.count:.4f}')
    return val_loss_meter.avg


# In[6]:

def _run():
    train_ds = SliceDataset(CFG.n_train, seed=1)
    valid_ds = SliceDataset(CFG.n_valid, seed=2)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_ds, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True)
    valid_sampler = torch.utils.data.distributed.DistributedSampler(
        valid_ds, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=False)
    train_dl = DataLoader(train_ds, batch_size=CFG.batch_size, sampler=train_sampler,
                          num_workers=CFG.num_workers, pin_memory=True)
    valid_dl = DataLoader(valid_ds, batch_size=CFG.batch_size, sampler=valid_sampler,
                          num_workers=CFG.num_workers, pin_memory=True)

    device = xm.xla_device()
    mx.to(device)
    scaled_lr = CFG.lr * CFG.num_tpu_workers
    optimizer = torch.optim.Adam(model.parameters(), lr=scaled_lr)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG.n_epochs)
    print('train batches', len(train_dl), 'scaled lr', scaled_lr)

    best_loss = np.inf
    trn_losses, val_losses = [], []
    for epoch in range(CFG.n_epochs):
        start = time.time()
        train_sampler.set_epoch(epoch)
        para_loader = pl.ParallelLoader(train_dl, [device])
        trn_loss = train_fn(epoch + 1, para_loader.per_device_loader(device), optimizer, device, lr_scheduler)
        trn_losses.append(trn_loss)

        para_loader = pl.ParallelLoader(valid_dl, [device])
        val_loss = valid_fn(epoch + 1, para_loader.per_device_loader(device), device)
        val_losses.append(val_loss)

        if val_loss < best_loss:
            best_loss = val_loss
            xm.save(model.state_dict(), 'resnet34_best.bin')
            xm.master_print(f'epoch {epoch + 1}: saved, {time.time() - start:.0f} s')
    return trn_losses, val_losses


def _mp_fn(rank, flags):
    torch.set_default_tensor_type('torch.FloatTensor')
    trn_losses, val_losses = _run()
    np.save('trn_losses.npy', np.array(trn_losses))
    np.save('val_losses.npy', np.array(val_losses))


FLAGS = {}
xmp.spawn(_mp_fn, args=(FLAGS,), nprocs=8, start_method='fork')
