"""A step function, a loader without end, and a graph that is ended by hand."""

import math

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torch_xla.utils.checkpoint import checkpoint


class Tokens(IterableDataset):
    """This core's part of the tokens, in random windows, for ever."""

    def __init__(self, path, length, core, cores):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.length = length
        self.core = core
        self.cores = cores

    def __iter__(self):
        rng = np.random.default_rng(self.core)
        while True:
            start = rng.integers(len(self.data) - self.length)
            yield torch.from_numpy(self.data[start : start + self.length].astype(np.int64))


class Decoder(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 8, batch_first=True) for _ in range(layers)]
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden)
        return self.head(hidden)


def learning_rate(step, steps, peak):
    return peak * 0.5 * (1 + math.cos(math.pi * step / steps))


def train_step(model, optimizer, tokens):
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    xm.optimizer_step(optimizer)
    return loss.detach()


def show(step, loss):
    xm.master_print(f"step {step}: loss {loss.item():.3f}")


def _mp_fn(index, config):
    torch.manual_seed(config["seed"])
    device = torch_xla.device()
    model = Decoder(50304, 768, 12).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    tokens = Tokens(config["data"], 1025, xr.global_ordinal(), xr.world_size())
    loader = pl.MpDeviceLoader(DataLoader(tokens, batch_size=8), device)
    model.train()
    for step, batch in enumerate(loader):
        if step >= config["steps"]:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config["steps"], config["lr"])
        loss = train_step(model, optimizer, batch)
        if step % 100 == 0:
            xm.add_step_closure(show, args=(step, loss))
    xm.save(model.state_dict(), "decoder.pt")


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=({"seed": 3, "lr": 6e-4, "steps": 20_000, "data": "train.bin"},))
