"""Base runner: one epoch after the other, hooks for whoever subclasses it."""
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def shard_of(data, shuffle):
    return DistributedSampler(data, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=shuffle)


def summed(*values):
    return xm.all_reduce(xm.REDUCE_SUM, list(values))


def count_right(logits, labels):
    return logits.argmax(-1).eq(labels).sum()


class Runner:
    epochs = 10
    log_every = 200

    def __init__(self, model, train, valid, batch, collate):
        self.model, self.train_set, self.valid_set = model, train, valid
        self.batch, self.collate = batch, collate
        self.step = 0

    # hooks
    def make_optimizer(self):
        raise NotImplementedError

    def loss(self, ids, labels):
        raise NotImplementedError

    def after_step(self, loss):
        pass

    def after_epoch(self, epoch, scores):
        pass

    def loader(self, data, train):
        sampler = shard_of(data, train)
        rows = DataLoader(data, self.batch, sampler=sampler, collate_fn=self.collate, num_workers=2, drop_last=train)
        return pl.MpDeviceLoader(rows, self.device), sampler

    def run(self, index):
        torch.manual_seed(2024)
        self.device = torch_xla.device()
        self.model.to(self.device)
        self.optimizer = self.make_optimizer()
        rows, sampler = self.loader(self.train_set, True)
        held, _ = self.loader(self.valid_set, False)
        for epoch in range(self.epochs):
            sampler.set_epoch(epoch)
            self.model.train()
            for ids, labels in rows:
                self.optimizer.zero_grad()
                loss = self.loss(ids, labels)
                loss.backward()
                xm.optimizer_step(self.optimizer)
                self.step += 1
                self.after_step(loss.detach())
            self.after_epoch(epoch, self.score(held))

    @torch.no_grad()
    def score(self, held):
        self.model.eval()
        right = torch.zeros((), device=self.device)
        total = torch.zeros((), device=self.device)
        for ids, labels in held:
            right += count_right(self.model(ids), labels)
            total += len(labels)
        right, total = summed(right, total)
        return {"accuracy": (right / total).item()}
