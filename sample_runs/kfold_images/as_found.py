# %% [markdown]
# # Leaf disease: EfficientNet on 8 TPU cores, 5 folds
# `torch_xla` nightly, TPU v3-8. One fold takes about 12 minutes.

# %%
import os
os.environ["XLA_USE_BF16"] = "1"
os.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;10.0.0.2:8470"

import gc
import time
import random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler

import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp

# %%
class Config:
    seed = 719
    n_fold = 5
    epochs = 8
    batch_size = 16
    img_size = 224
    n_images = 20000
    n_classes = 5
    lr = 3e-4
    max_norm = 5.0
    stages = [(16, 1, 1), (24, 2, 2), (40, 2, 2), (80, 3, 2), (112, 3, 1)]   # channels, blocks, stride


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

# %%
class LeafDataset(Dataset):
    """Stripes on green: the class is the direction of the stripes."""

    def __init__(self, idxs, labels, train=True):
        self.idxs = idxs
        self.labels = labels
        self.train = train

    def __len__(self):
        return len(self.idxs)

    def __getitem__(self, i):
        idx = self.idxs[i]
        label = self.labels[idx]
        s = Config.img_size
        y, x = np.mgrid[:s, :s] / s
        a = np.pi * label / Config.n_classes
        img = np.random.RandomState(idx).randn(3, s, s) * 0.3
        img[1] += np.sin(25 * (x * np.cos(a) + y * np.sin(a)))
        if self.train and random.random() < 0.5:
            img = img[:, ::-1, ::-1].copy()
        return torch.tensor(img).float(), torch.tensor(label)


def make_folds(n, k):
    perm = np.random.permutation(n)
    return [(np.concatenate([perm[:i * n // k], perm[(i + 1) * n // k:]]), perm[i * n // k:(i + 1) * n // k])
            for i in range(k)]

# %%
class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1 = nn.Conv2d(c, max(c // 16, 1), 1)
        self.fc2 = nn.Conv2d(max(c // 16, 1), c, 1)
        self.act = Swish()

    def forward(self, x):
        w = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(self.act(self.fc1(w))))


class MBConv(nn.Module):
    def __init__(self, cin, cout, stride, expand=4):
        super().__init__()
        c = cin * expand
        self.body = nn.Sequential(
            nn.Conv2d(cin, c, 1, bias=False), nn.BatchNorm2d(c), Swish(),
            nn.Conv2d(c, c, 3, stride, 1, groups=c, bias=False), nn.BatchNorm2d(c), Swish(),
            SE(c), nn.Conv2d(c, cout, 1, bias=False), nn.BatchNorm2d(cout))
        self.skip = stride == 1 and cin == cout

    def forward(self, x):
        out = self.body(x)
        return out + x if self.skip else out


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), Swish()]
        cin = 16
        for c, n, s in Config.stages:
            for j in range(n):
                layers.append(MBConv(cin, c, s if j == 0 else 1))
                cin = c
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(cin, Config.n_classes)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))

# %%
def train_one_epoch(fold, epoch, model, loader, criterion, optimizer, device):
    model.train()
    t0 = time.time()
    running_loss, correct, total = 0.0, 0, 0
    for step, (images, targets) in enumerate(loader):
        images, targets = images.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), Config.max_norm)
        xm.optimizer_step(optimizer)

        running_loss += loss.item() * images.size(0)
        correct += (outputs.argmax(1) == targets).sum().item()
        total += images.size(0)
        print(f"fold {fold} epoch {epoch} step {step} loss {running_loss / total:.4f} acc {correct / total:.4f}")
    print("epoch took", time.time() - t0)
    return running_loss / total


def valid_one_epoch(model, loader, device):
    model.eval()
    all_preds, all_targets = [], []
    for images, targets in loader:
        with torch.no_grad():
            outputs = model(images)
        all_preds.append(outputs.argmax(1).cpu().numpy())
        all_targets.append(targets.cpu().numpy())
    return np.mean(np.concatenate(all_preds) == np.concatenate(all_targets))


def run_fold(rank, fold):
    seed_all(Config.seed)
    labels = np.random.randint(0, Config.n_classes, Config.n_images)
    trn_idx, val_idx = make_folds(Config.n_images, Config.n_fold)[fold]
    trn_ds, val_ds = LeafDataset(trn_idx, labels), LeafDataset(val_idx, labels, train=False)
    trn_sampler = DistributedSampler(trn_ds, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=True)
    val_sampler = DistributedSampler(val_ds, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=False)
    trn_loader = DataLoader(trn_ds, batch_size=Config.batch_size, sampler=trn_sampler, num_workers=4, drop_last=True)
    val_loader = DataLoader(val_ds, batch_size=Config.batch_size, sampler=val_sampler, num_workers=4)

    device = xm.xla_device()
    model = LeafNet().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=Config.lr * xm.xrt_world_size())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=1)

    best = 0
    for epoch in range(Config.epochs):
        para_loader = pl.ParallelLoader(trn_loader, [device])
        train_one_epoch(fold, epoch, model, para_loader.per_device_loader(device), criterion, optimizer, device)
        para_loader = pl.ParallelLoader(val_loader, [device])
        acc = valid_one_epoch(model, para_loader.per_device_loader(device), device)
        if xm.is_master_ordinal():
            acc = xm.mesh_reduce("val_acc", acc, np.mean)
            print("valid acc", acc)
        scheduler.step(acc)
        if acc > best:
            best = acc
            torch.save(model.state_dict(), f"leaf_fold{fold}.pth")
        gc.collect()

# %%
for fold in range(Config.n_fold):
    xmp.spawn(run_fold, args=(fold,), nprocs=8, start_method="fork")
