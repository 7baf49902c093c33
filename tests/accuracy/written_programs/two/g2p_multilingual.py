#!/usr/bin/env python3
"""Grapheme-to-phoneme conversion for several languages: one encoder, a decoder head per language."""
import argparse
import functools
import itertools
import json
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed.parallel_loader import MpDeviceLoader

PAD, BOS, EOS = 0, 1, 2
LANGS = ("de", "fr", "nl", "pl")
LETTERS, PHONES = 34, 40


class Lexicon(Dataset):
    """word<TAB>p h o n e s, one entry a line; everything is padded to a fixed length here."""

    def __init__(self, path, letters, phones):
        with open(path, encoding="utf8") as f:
            self.entries = [line.rstrip("\n").split("\t") for line in f]
        self.letters, self.phones = letters, phones

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        word, sounds = self.entries[i]
        src = [self.letters[c] for c in itertools.islice(word.lower(), LETTERS)]
        tgt = [BOS, *itertools.islice((self.phones[p] for p in sounds.split()), PHONES - 2), EOS]
        return torch.tensor(src + [PAD] * (LETTERS - len(src))), torch.tensor(tgt + [PAD] * (PHONES - len(tgt)))


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.scale = dim**-0.5

    def forward(self, state, memory, blank):
        score = torch.bmm(self.query(state), memory.transpose(1, 2)) * self.scale
        score = score.masked_fill(blank.unsqueeze(1), -1e9)
        return torch.bmm(score.softmax(-1), memory)


class Speller(nn.Module):
    def __init__(self, n_letters, n_phones, dim=256):
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                "letters": nn.Embedding(n_letters, dim, padding_idx=PAD, sparse=True),
                "phones": nn.Embedding(n_phones, dim, padding_idx=PAD),
            }
        )
        self.encoder = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.decoders = nn.ModuleDict({lang: nn.GRU(dim, dim, batch_first=True) for lang in LANGS})
        self.look = nn.ModuleDict({lang: Attention(dim) for lang in LANGS})
        self.heads = nn.ModuleDict({lang: nn.Linear(2 * dim, n_phones) for lang in LANGS})

    def encode(self, src):
        memory, last = self.encoder(self.tables["letters"](src))
        return memory, last[-1:]

    def decode(self, lang, phones, hidden, memory, blank):
        out, hidden = self.decoders[lang](self.tables["phones"](phones), hidden)
        seen = self.look[lang](out, memory, blank)
        return self.heads[lang](torch.cat([out, seen], dim=-1)), hidden

    def forward(self, lang, src, phones):
        memory, hidden = self.encode(src)
        return self.decode(lang, phones, hidden, memory, src == PAD)[0]


@dataclass
class TrainState:
    model: Speller
    dense: torch.optim.Optimizer
    table: torch.optim.Optimizer
    step: int = 0

    def clear(self):
        for opt in (self.dense, self.table):
            opt.zero_grad(set_to_none=True)


def bf16():
    return torch.autocast("cuda", dtype=torch.bfloat16)


def step(state, batches, *, criterion, amp):
    state.clear()
    losses = []
    for lang, (src, tgt) in zip(LANGS, batches):
        with amp():
            logits = state.model(lang, src, tgt[:, :-1])
        losses.append(criterion(logits.float().flatten(0, 1), tgt[:, 1:].flatten()))
    loss = torch.stack(losses).mean()
    loss.backward()
    xm.optimizer_step(state.dense)
    state.table.step()
    state.step += 1
    return loss.detach()


@torch.no_grad()
def greedy(model, lang, src, longest):
    memory, hidden = model.encode(src)
    blank = src == PAD
    token = torch.full((src.size(0), 1), BOS)
    picked = []
    for _ in range(longest):
        logits, hidden = model.decode(lang, token, hidden, memory, blank)
        token = logits.argmax(-1)
        picked.append(token)
    return torch.cat(picked, dim=1)


def phone_errors(hyp, ref):
    """Levenshtein distance on the host."""
    row = list(range(len(ref) + 1))
    for i, h in enumerate(hyp, 1):
        prev, row[0] = row[0], i
        for j, r in enumerate(ref, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (h != r))
    return row[-1]


def upto_eos(ids):
    return list(itertools.takewhile(lambda p: p != EOS, ids))


def evaluate(model, loaders):
    model.eval()
    wrong, total = 0, 0
    for lang, loader in loaders.items():
        kept = [(greedy(model, lang, src, PHONES), tgt) for src, tgt in loader]
        for hyp, tgt in kept:
            for h, t in zip(hyp.cpu().tolist(), tgt[:, 1:].cpu().tolist()):
                ref = upto_eos(t)
                wrong += phone_errors(upto_eos(h), ref)
                total += len(ref)
    model.train()
    pairs = xm.mesh_reduce("per", (wrong, total), list)
    return sum(w for w, _ in pairs) / max(1, sum(t for _, t in pairs))


def corpora(cfg, part, letters, phones, rank, world):
    for lang in LANGS:
        data = Lexicon(os.path.join(cfg.root, f"{lang}.{part}.tsv"), letters, phones)
        yield lang, data, DistributedSampler(data, num_replicas=world, rank=rank, shuffle=part == "train")


def train(index, cfg):
    torch.manual_seed(cfg.seed)
    device = torch_xla.device()
    rank, world = xr.global_ordinal(), xr.world_size()
    with open(os.path.join(cfg.root, "symbols.json")) as f:
        symbols = json.load(f)
    letters, phones = symbols["letters"], symbols["phones"]

    model = Speller(len(letters), len(phones)).to(device)
    tables = list(model.tables["letters"].parameters())
    rest = [p for n, p in model.named_parameters() if not n.startswith("tables.letters")]
    state = TrainState(
        model,
        torch.optim.AdamW(rest, lr=cfg.lr, weight_decay=1e-2),
        torch.optim.SparseAdam(tables, lr=cfg.lr),
    )
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    one_step = functools.partial(step, criterion=criterion, amp=bf16)

    feeds, samplers = [], []
    for lang, data, sampler in corpora(cfg, "train", letters, phones, rank, world):
        loader = DataLoader(data, cfg.batch, sampler=sampler, num_workers=2)
        feeds.append(MpDeviceLoader(loader, device))
        samplers.append(sampler)
    checks = {
        lang: MpDeviceLoader(DataLoader(data, cfg.batch, sampler=sampler), device)
        for lang, data, sampler in corpora(cfg, "dev", letters, phones, rank, world)
    }

    for epoch in range(cfg.epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        loss = None
        for batches in zip(*feeds):
            loss = one_step(state, batches)
        per = evaluate(model, checks)
        print(f"epoch {epoch}: step {state.step} loss {loss.item():.3f} PER {per:.3%}")
        xm.save(model.state_dict(), os.path.join(cfg.out, f"g2p-{epoch:02d}.pt"))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", required=True)
    ap.add_argument("--out", default="exp/g2p")
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--lr", type=float, default=8e-4)
    ap.add_argument("--seed", type=int, default=7)
    options = ap.parse_args()
    os.makedirs(options.out, exist_ok=True)
    torch_xla.launch(train, args=(options,))
