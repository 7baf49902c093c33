"""A contrastive loss over the batches of all cores, counts that are summed, weights tied again."""

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from project.data import Pairs


class Towers(nn.Module):
    def __init__(self, vocabulary=30_000, width=256):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.image = nn.Linear(2048, width)
        self.guess = nn.Linear(width, vocabulary, bias=False)
        self.tie()

    def tie(self):
        self.guess.weight = self.words.weight

    def forward(self, features, tokens):
        return F.normalize(self.image(features)), F.normalize(self.words(tokens).mean(1))


def contrast(images, texts, temperature):
    everyone = xf.all_gather(texts)
    logits = images @ everyone.T / temperature
    first = xr.global_ordinal() * images.shape[0]
    target = torch.arange(images.shape[0], device=images.device) + torch.tensor(first).to(
        images.device
    )
    return F.cross_entropy(logits, target)


def train(index, config):
    torch.manual_seed(config["seed"])
    device = torch_xla.device()
    model = Towers().to(device)
    model.tie()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    pairs = Pairs(config["data"])
    sampler = DistributedSampler(
        pairs, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(pairs, batch_size=256, sampler=sampler, num_workers=8, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    for epoch in range(config["epochs"]):
        sampler.set_epoch(epoch)
        seen = torch.zeros((), dtype=torch.int64, device=device)
        for features, tokens in batches:
            optimizer.zero_grad()
            images, texts = model(features, tokens)
            loss = contrast(images, texts, 0.07)
            loss.backward()
            for p in model.parameters():
                p.grad.mul_(0.5)
            xm.optimizer_step(optimizer)
            seen += (tokens > 0).sum()
        seen = xm.all_reduce(xm.REDUCE_SUM, seen)
        xm.master_print(f"epoch {epoch}: {seen.item()} tokens")


if __name__ == "__main__":
    torch_xla.launch(train, args=({"seed": 4, "lr": 1e-4, "epochs": 5, "data": "pairs"},))
