"""First phase: titles and descriptions of the same offer attract each other."""
import csv
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Offers(Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = [(row["title"], text) for row in csv.DictReader(f) if (text := row["description"].strip())]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def told_every(steps):
    """Hands what the step gives to the log once in so many calls."""
    def around(step):
        calls = 0

        @functools.wraps(step)
        def inner(*args):
            nonlocal calls
            value, calls = step(*args), calls + 1
            if calls % steps == 0:
                xm.add_step_closure(lambda n, v: xm.master_print(f"warm-up {n}: {v.item():.4f}"), args=(calls, value))
            return value
        return inner
    return around


def tamed(net, most):
    live = [p for p in net.parameters() if p.grad is not None]
    return nn.utils.clip_grad_norm_(live, most)


def loader_for(rows, tokenizer, batch):
    def collate(pairs):
        titles, texts = map(list, zip(*pairs))
        encode = functools.partial(tokenizer, padding="max_length", truncation=True, return_tensors="pt")
        return dict(encode(titles, max_length=48)), dict(encode(texts, max_length=192))
    sampler = DistributedSampler(rows, num_replicas=xr.world_size(), rank=xr.global_ordinal())
    return DataLoader(rows, batch, sampler=sampler, collate_fn=collate, num_workers=4, drop_last=True), sampler


def warm_up(encoder, tokenizer, opts):
    device = torch_xla.device()
    loader, sampler = loader_for(Offers(opts.offers), tokenizer, opts.warm_batch)
    groups = [{"params": encoder.text.parameters(), "lr": opts.warm_lr}, {"params": encoder.project.parameters(), "lr": 20 * opts.warm_lr}]
    adam = torch.optim.AdamW(groups)
    begin = xr.global_ordinal() * opts.warm_batch

    @told_every(200)
    def attract(title, text):
        adam.zero_grad()
        a, b = encoder(**title), encoder(**text)
        everyone = xf.all_gather(b, dim=0)
        scores = a @ everyone.t() / 0.05
        goal = torch.arange(len(a), device=device) + offset
        loss = F.cross_entropy(scores, goal)
        loss.backward()
        tamed(encoder, 1.0)
        xm.optimizer_step(adam)
        return loss.detach()

    offset = torch.full((), begin, dtype=torch.long).to(device)
    encoder.train()
    for epoch in range(opts.warm_epochs):
        sampler.set_epoch(epoch)
        for title, text in pl.MpDeviceLoader(loader, device):
            attract(title, text)
    if (left := opts.keep_warm) is not None:
        xm.save(encoder.state_dict(), left)
    torch_xla.sync()
    return encoder
