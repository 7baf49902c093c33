"""Mixup, EMA, losses and the epoch loops. Modelled on timm's train.py, cut down to what we use."""
import contextlib
import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


def smear(target, num_classes, smoothing=0.0, device="cuda"):
    off = torch.full((num_classes,), smoothing / num_classes, device=device)
    return target * (1.0 - smoothing) + off


class Mixup:
    def __init__(self, alpha, num_classes, smoothing=0.0):
        self.alpha, self.num_classes, self.smoothing = alpha, num_classes, smoothing

    def __call__(self, batch):
        lam = float(np.random.beta(self.alpha, self.alpha))
        other = batch["mel"].flip(0)
        batch["mel"] = batch["mel"] * lam + other * (1.0 - lam)
        target = smear(batch["target"], self.num_classes, self.smoothing)
        batch["target"] = target * lam + target.flip(0) * (1.0 - lam)
        batch["length"] = torch.maximum(batch["length"], batch["length"].flip(0))
        return batch


class Shadow:
    """Exponential moving average of the weights."""

    def __init__(self, model, decay=0.9996):
        self.decay = decay
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def follow(self, model):
        mine, theirs = self.module.state_dict(), model.state_dict()
        for key, value in mine.items():
            if value.is_floating_point():
                value.mul_(self.decay).add_(theirs[key], alpha=1.0 - self.decay)
            else:
                value.copy_(theirs[key])


@contextlib.contextmanager
def stage(name, spent):
    spent[name] = spent.get(name, 0) + 1
    yield
    xm.mark_step()


@contextlib.contextmanager
def half(enabled):
    with torch.cuda.amp.autocast(enabled=enabled, dtype=torch.bfloat16):
        yield


@contextlib.contextmanager
def shadowed(model, shadow):
    yield shadow.module if shadow is not None else model


def asymmetric(logits, batch, gamma=2.0):
    prob = torch.sigmoid(logits)
    down = torch.where(batch["target"] > 0.5, 1 - prob, prob) ** gamma
    plain = F.binary_cross_entropy_with_logits(logits, batch["target"], reduction="none")
    return (down * plain).sum(1).mean()


LOSSES = {
    "bce": lambda logits, batch: F.binary_cross_entropy_with_logits(logits, batch["target"]),
    "asymmetric": asymmetric,
}


class Tagger(nn.Module):
    def __init__(self, mels, classes, width=192, depth=6):
        super().__init__()
        self.stem = nn.Conv1d(mels, width, 5, stride=2, padding=2)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, mel, length):
        x = F.gelu(self.stem(mel)).transpose(1, 2)
        place = torch.arange(x.size(1), device=x.device)
        pad = place[None] >= (length[:, None] + 1) // 2
        x = self.body(x, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(1) / keep.sum(1))


class Engine:
    def __init__(self, model, optimizer, opts, shadow, mixup):
        self.model, self.optimizer, self.opts = model, optimizer, opts
        self.shadow, self.mixup = shadow, mixup
        self.loss = LOSSES[opts["loss"]]
        self.updates = 0

    def rate(self):
        warm, total = self.opts["warmup"], self.opts["updates"]
        if self.updates < warm:
            return self.opts["lr"] * (self.updates + 1) / warm
        done = min(1.0, (self.updates - warm) / max(1, total - warm))
        return self.opts["lr"] * 0.5 * (1 + math.cos(math.pi * done))

    def train_epoch(self, batches):
        self.model.train()
        spent, total = {}, torch.zeros((), device=xm.xla_device())
        count = 0
        for batch in batches:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            if self.mixup is not None:
                batch = self.mixup(batch)
            with stage("forward", spent), half(self.opts["amp"]):
                loss = self.loss(self.model(batch["mel"], batch["length"]), batch)
            self.optimizer.zero_grad()
            loss.backward()
            xm.reduce_gradients(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.opts["clip"])
            self.optimizer.step()
            if self.shadow is not None:
                self.shadow.follow(self.model)
            self.updates += 1
            count += 1
            total += loss.detach()
        return {"train_loss": (total / max(1, count)).item(), "stages": dict(spent)}

    @torch.no_grad()
    def evaluate(self, batches, classes):
        sums = torch.zeros(3, classes, device=xm.xla_device())
        with shadowed(self.model, self.shadow) as net:
            net.eval()
            for batch in batches:
                guess = (net(batch["mel"], batch["length"]) > 0).float()
                truth = batch["target"]
                sums[0] += (guess * truth).sum(0)
                sums[1] += (guess * (1 - truth)).sum(0)
                sums[2] += ((1 - guess) * truth).sum(0)
        hit, extra, missed = xm.all_reduce(xm.REDUCE_SUM, sums).unbind(0)
        f1 = 2 * hit / (2 * hit + extra + missed).clamp(min=1)
        return {"macro_f1": f1.mean().item()}
