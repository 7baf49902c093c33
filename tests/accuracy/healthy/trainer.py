"""A class that holds model, optimizer and loaders."""

from dataclasses import dataclass

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch_xla.distributed.parallel_loader import MpDeviceLoader


@dataclass
class Settings:
    epochs: int = 4
    batch_size: int = 32
    learning_rate: float = 3e-4
    log_every: int = 50


class Sentences(Dataset):
    def __init__(self, tokens, length):
        self.tokens = tokens
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, item):
        start = item * self.length
        return self.tokens[start : start + self.length]


class Tagger(nn.Module):
    def __init__(self, vocabulary, width=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


class Trainer:
    def __init__(self, model, dataset, settings):
        self.device = torch_xla.device()
        self.settings = settings
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate)
        self.sampler = DistributedSampler(
            dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
        )
        self.loader = DataLoader(
            dataset,
            batch_size=settings.batch_size,
            sampler=self.sampler,
            drop_last=True,
            num_workers=2,
        )
        self.device_loader = MpDeviceLoader(self.loader, self.device)
        self.criterion = nn.CrossEntropyLoss()

    def report(self, epoch, step, loss):
        xm.master_print(f"epoch {epoch} step {step}: {loss.item():.4f}")

    def fit(self):
        for epoch in range(self.settings.epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            for step, tokens in enumerate(self.device_loader):
                self.optimizer.zero_grad()
                logits = self.model(tokens[:, :-1])
                loss = self.criterion(logits.flatten(0, 1), tokens[:, 1:].flatten())
                loss.backward()
                xm.optimizer_step(self.optimizer)
                if step % self.settings.log_every == 0:
                    xm.add_step_closure(self.report, args=(epoch, step, loss.detach()))
            self.save(f"tagger-{epoch}.pt")

    def save(self, path):
        xm.save({"model": self.model.state_dict()}, path)


def run(index, tokens):
    torch.manual_seed(0)
    trainer = Trainer(Tagger(vocabulary=30_000), Sentences(tokens, 128), Settings())
    trainer.fit()


if __name__ == "__main__":
    torch_xla.launch(run, args=(torch.load("tokens.pt", map_location="cpu"),))
