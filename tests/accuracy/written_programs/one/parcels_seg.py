#!/usr/bin/env python3
# Field parcels from aerial tiles: rendered tiles first, then the surveyed ones.
import functools
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as core
import torch_xla.debug.metrics as counters
import torch_xla.distributed.parallel_loader as feeding
import torch_xla.runtime as hosts
from PIL import Image
from torch import nn
from torch.nn import functional as fn
from torch.utils import data as td
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as Shard

VOID = 255
CLASSES = 9


class Tiles(td.Dataset):
    def __init__(self, root, names, flip=False):
        self.root, self.flip = root, flip
        with open(names) as f:
            self.names = f.read().split()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        rgb = np.asarray(Image.open(f"{self.root}/rgb/{name}.jpg").convert("RGB"), dtype=np.float32) / 255.0
        plan = np.asarray(Image.open(f"{self.root}/plan/{name}.png"), dtype=np.int64)
        if self.flip and np.random.rand() < 0.5:
            rgb, plan = rgb[:, ::-1], plan[:, ::-1]
        pixels = torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1)))
        return dict(pixels=pixels, plan=torch.from_numpy(np.ascontiguousarray(plan)))


def block(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.GroupNorm(8, b), nn.SiLU())


class ParcelNet(nn.Module):
    def __init__(self, device, widths=(48, 96, 192, 384)):
        super().__init__()
        self.stem = block(3, widths[0])
        self.down = nn.ModuleList(Shard(nn.Sequential(block(a, b, 2), block(b, b)).to(device)) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.mix = nn.ModuleList(block(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, pixels, plan=None):
        kept = [self.stem(pixels)]
        for stage in self.down:
            kept.append(stage(kept[-1]))
        x = kept.pop()
        for up, mix in zip(reversed(self.up), reversed(self.mix)):
            x = mix(torch.cat([up(x), kept.pop()], 1))
        logits = self.out(x)
        if plan is None:
            return logits
        return logits, fn.cross_entropy(logits, plan, ignore_index=VOID)


def stepping(forward):
    """Turns a function that gives a loss into one that also updates."""
    @functools.wraps(forward)
    def update(net, solver, **batch):
        solver.zero_grad(set_to_none=True)
        loss = forward(net, **batch)
        loss.backward()
        net.clip_grad_norm_(1.0)
        core.optimizer_step(solver)
        return loss.detach()
    return update


def dumping(path):
    def around(step):
        calls = []

        @functools.wraps(step)
        def inner(*args, **kwargs):
            loss = step(*args, **kwargs)
            if not calls and os.environ.get("DUMP_HLO"):
                with open(f"{path}.{hosts.global_ordinal()}", "w") as f:
                    f.write(torch_xla._XLAC._get_xla_tensors_hlo([loss]))
            calls.append(1)
            return loss
        return inner
    return around


@dumping("/tmp/parcels.hlo")
@stepping
def segment(net, **batch):
    logits, loss = net(**batch)
    return loss


@torch.no_grad()
def mean_iou(net, tiles, device):
    net.eval()
    table = torch.zeros(CLASSES, CLASSES, device=device)
    for batch in tiles:
        guess = net(pixels=batch["pixels"]).argmax(1).flatten()
        truth = batch["plan"].flatten()
        valid = truth.ne(VOID)
        truth = torch.where(valid, truth, torch.zeros_like(truth))
        t = fn.one_hot(truth, num_classes=CLASSES).float() * valid.unsqueeze(1)
        table += t.t() @ fn.one_hot(guess, num_classes=CLASSES).float()
    table = core.all_reduce(core.REDUCE_SUM, table)
    torch_xla.sync()
    table = table.cpu()
    hit = table.diag()
    union = table.sum(0) + table.sum(1) - hit
    net.train()
    return (hit[union > 0] / union[union > 0]).mean().item()


def batches(rows, plan, device, **more):
    sampler = td.DistributedSampler(rows, num_replicas=hosts.world_size(), rank=hosts.global_ordinal(), shuffle=more.pop("shuffle", True))
    return feeding.MpDeviceLoader(td.DataLoader(rows, batch_size=plan.batch, sampler=sampler, **more), device)


def fit(name, net, solver, train, held, device, epochs):
    for epoch in range(epochs):
        began, total = time.perf_counter(), torch.zeros((), device=device)
        for batch in train:
            total += segment(net, solver, **batch)
        mean = total.item() / len(train)
        iou = mean_iou(net, held, device)
        core.master_print(f"{name} {epoch}: loss {mean:.4f} miou {iou:.4f} in {time.perf_counter() - began:.0f} s")
        core.save({"model": net.state_dict(), "shards": net.get_shard_metadata()},
                  f"{plan_path(name)}-{hosts.global_ordinal()}.pt", master_only=False)


def plan_path(name):
    return os.path.join(os.environ.get("PARCELS_OUT", "."), name)


def work(index, plan):
    torch.manual_seed(plan.seed)
    device = torch_xla.device()
    net = Shard(ParcelNet(device).to(device))
    held = batches(Tiles(plan.survey, plan.survey_dev), plan, device, shuffle=False, drop_last=True, num_workers=2)

    rendered = batches(Tiles(plan.rendered, plan.rendered_list, flip=True), plan, device, drop_last=True)
    solver = torch.optim.AdamW(net.parameters(), lr=plan.lr)
    fit("rendered", net, solver, rendered, held, device, epochs=1)

    survey = batches(Tiles(plan.survey, plan.survey_list, flip=True), plan, device, num_workers=6, persistent_workers=True)
    solver = torch.optim.AdamW(net.parameters(), lr=plan.lr / 4, weight_decay=0.02)
    fit("survey", net, solver, survey, held, device, epochs=plan.epochs)
    core.master_print(counters.metrics_report())


if __name__ == "__main__":
    root = sys.argv[1]
    plan = SimpleNamespace(rendered=f"{root}/rendered", rendered_list=f"{root}/rendered.txt", survey=f"{root}/survey",
                           survey_list=f"{root}/train.txt", survey_dev=f"{root}/dev.txt", batch=16, lr=8e-4, epochs=40, seed=5)
    torch_xla.launch(work, args=(plan))
