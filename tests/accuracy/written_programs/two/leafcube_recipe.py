"""Disease grading of leaves from 12-band cubes. A recipe is a class with hooks; `Trainer.fit` calls them."""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", XLA_IR_DEBUG="1")

import copy
import glob
import time
from types import SimpleNamespace

import numpy as np
import timm
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.utils import dispatch_clip_grad
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONF = SimpleNamespace(
    data=SimpleNamespace(root="/mnt/leafcubes", bands=12, side=224, grades=6, workers=8),
    opt=SimpleNamespace(base_lr=2.5e-4, per_core=32, cores=8, decay=0.05, clip=3.0, epochs=80, warmup=5),
    ema=SimpleNamespace(decay=0.999, after=500),
    mix=SimpleNamespace(mixup_alpha=0.3, cutmix_alpha=0.0, prob=1.0, label_smoothing=0.1),
    arch=dict(model_name="convnext_nano", pretrained=True, drop_path_rate=0.1),
    out="/mnt/leafcubes/run",
)


class Cubes(Dataset):
    def __init__(self, root, part):
        self.files = sorted(glob.glob(os.path.join(root, part, "*", "*.npy")))
        self.grades = [int(f.split(os.sep)[-2]) for f in self.files]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        cube = np.load(self.files[i]).astype(np.float32) / 4095.0
        return {"cube": torch.from_numpy(cube), "label": torch.tensor(self.grades[i])}


class Grader(nn.Module):
    def __init__(self, data, **arch):
        super().__init__()
        self.net = timm.create_model(in_chans=data.bands, num_classes=data.grades, **arch)
        self.register_buffer("centre", torch.linspace(0.2, 0.5, data.bands).view(1, -1, 1, 1))

    def forward(self, *, cube, label=None, criterion=None):
        scores = self.net(cube - self.centre)
        if label is None or criterion is None:
            return {"scores": scores}
        return {"scores": scores, "loss": criterion(scores, label)}


class Average:
    def __init__(self, model, *, decay, after):
        self.decay, self.after, self.seen = decay, after, 0
        self.copy = copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def __call__(self, model):
        self.seen += 1
        keep = self.decay if self.seen > self.after else 0.0
        for mine, theirs in zip(self.copy.parameters(), model.parameters()):
            mine.copy_(theirs + keep * (mine - theirs))


class Trainer:
    """Hooks: setup, before_step, losses, before_update, after_step, after_epoch."""

    def __init__(self, conf):
        self.conf = conf
        self.device = torch_xla.device()
        self.rank, self.world = xr.global_ordinal(), xr.world_size()
        self.step = 0
        self.setup(**vars(conf))

    def setup(self, **_):
        raise NotImplementedError

    def before_step(self, batch):
        self.optimizer.zero_grad()
        return batch

    def losses(self, batch):
        return self.model(**batch, criterion=self.criterion)

    def before_update(self):
        pass

    def after_step(self, out):
        pass

    def after_epoch(self, epoch, seconds):
        pass

    def loader(self, rows, *, training):
        part = DistributedSampler(rows, num_replicas=self.world, rank=self.rank, shuffle=training, drop_last=training)
        kw = dict(num_workers=self.conf.data.workers, drop_last=training)
        return part, pl.MpDeviceLoader(DataLoader(rows, self.conf.opt.per_core, sampler=part, **kw), self.device)

    def fit(self):
        for epoch in range(self.conf.opt.epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            began = time.monotonic()
            for batch in self.batches:
                out = self.losses(self.before_step(batch))
                out["loss"].backward()
                self.before_update()
                xm.optimizer_step(self.optimizer)
                self.after_step(out)
                self.step += 1
            xm.wait_device_ops()
            seconds = time.monotonic() - began
            self.schedule.step()
            self.after_epoch(epoch, seconds)


class LeafRecipe(Trainer):
    def setup(self, *, data, opt, ema, mix, arch, out):
        torch.manual_seed(31)
        self.model = Grader(data, **arch).to(self.device)
        groups = [
            {"params": [p for p in self.model.parameters() if p.ndim > 1], "weight_decay": opt.decay},
            {"params": [p for p in self.model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ]
        rate = opt.base_lr * opt.per_core * opt.cores / 256
        self.optimizer = torch.optim.AdamW(groups, lr=rate)
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizer, start_factor=0.05, total_iters=opt.warmup)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, opt.epochs - opt.warmup)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warm, cosine], milestones=[opt.warmup])
        self.average = Average(self.model, **vars(ema))
        self.mixup = Mixup(num_classes=data.grades, **vars(mix))
        self.criterion = SoftTargetCrossEntropy()
        self.sampler, self.batches = self.loader(Cubes(data.root, "train"), training=True)
        _, self.checks = self.loader(Cubes(data.root, "valid"), training=False)
        self.low, self.best, self.out = float("inf"), 0.0, out

    def before_step(self, batch):
        cube, label = self.mixup(batch["cube"], batch["label"])
        return {"cube": cube, "label": label}

    def before_update(self):
        dispatch_clip_grad(self.model.parameters(), value=self.conf.opt.clip, mode="norm")

    def after_step(self, out):
        self.average(self.model)
        if (value := float(out["loss"])) < self.low:
            self.low = value

    @torch.no_grad()
    def kappa_table(self):
        """Confusion counts over all cores, grades x grades."""
        n = self.conf.data.grades
        table = torch.zeros(n, n, device=self.device)
        grade = torch.arange(n, device=self.device)
        for batch in self.checks:
            guess = self.average.copy(cube=batch["cube"])["scores"].argmax(1)
            truth = (batch["label"].unsqueeze(1) == grade).float()
            table += truth.T @ (guess.unsqueeze(1) == grade).float()
        return xm.all_reduce(xm.REDUCE_SUM, table)

    def after_epoch(self, epoch, seconds):
        table = self.kappa_table()
        torch_xla.sync()
        table = table.cpu().numpy()
        n = len(table)
        weight = np.subtract.outer(np.arange(n), np.arange(n)) ** 2
        chance = np.outer(table.sum(1), table.sum(0)) / table.sum()
        kappa = 1 - (weight * table).sum() / (weight * chance).sum()
        line = {"epoch": epoch, "kappa": round(float(kappa), 4), "low": self.low, "s": round(seconds, 1)}
        xm.master_print(" ".join(f"{k}={v}" for k, v in line.items()))
        if kappa > self.best:
            self.best = kappa
            xm.save({k: v for k, v in self.average.copy.state_dict().items()}, os.path.join(self.out, "ema.pt"))


def on_core(index, conf):
    LeafRecipe(conf).fit()


if __name__ == "__main__":
    os.makedirs(CONF.out, exist_ok=True)
    torch_xla.launch(on_core, args=(CONF,))
