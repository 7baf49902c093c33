"""Listen-attend-spell with transformers, character targets. Features come from disk as float32 log-mels."""
import argparse
import os

os.environ["XLA_TRIM_GRAPH_SIZE"] = "500000"
os.environ["PJRT_DEVICE"] = "TPU"

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

CHARS = "_^$ abcdefghijklmnopqrstuvwxyz'"
PAD, BOS, EOS = 0, 1, 2
DEVICE = None
MASTER = False


@dataclass(frozen=True)
class Cfg:
    corpus: str
    out: str = "exp/tabla"
    mels: int = 80
    dim: int = 320
    depth: int = 8
    letters: int = 160
    batch: int = 24
    epochs: int = 50
    per_epoch: int = 2000
    lr: float = 1.2e-3
    warmup: int = 4000
    clip: float = 5.0
    workers: int = 8


class Utterances(NamedTuple):
    feats: torch.Tensor
    frames: torch.Tensor
    chars: torch.Tensor


class Corpus(Dataset):
    def __init__(self, cfg, part, mask):
        self.cfg, self.mask = cfg, mask
        self.root = Path(cfg.corpus)
        self.lines = [json.loads(line) for line in (self.root / f"{part}.jsonl").read_text().splitlines()]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        line = self.lines[i]
        mel = np.load(self.root / line["mel"]).astype(np.float32)
        if self.mask:
            at = np.random.randint(0, self.cfg.mels - 12)
            mel[:, at : at + 12] = 0.0
        ids = [BOS, *(CHARS.index(c) for c in line["text"] if c in CHARS)][: self.cfg.letters - 1] + [EOS]
        return torch.from_numpy(mel), torch.tensor(ids)


class Pack:
    """Batches of utterances; transcripts always have room for `letters` characters."""

    def __init__(self, letters):
        self.letters = letters

    def __call__(self, rows):
        feats, chars = zip(*rows)
        frames = torch.tensor([len(f) for f in feats])
        chars = torch.stack([F.pad(c, (0, self.letters - len(c))) for c in chars])
        return Utterances(pad_sequence(feats, batch_first=True), frames, chars)


class Speller(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(cfg.mels, cfg.dim, 5, 2, 2), nn.GELU(), nn.Conv1d(cfg.dim, cfg.dim, 5, 2, 2), nn.GELU()
        )
        shape = dict(d_model=cfg.dim, nhead=5, dim_feedforward=4 * cfg.dim, batch_first=True, norm_first=True)
        self.listen = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), cfg.depth, enable_nested_tensor=False)
        self.spell = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), 4)
        self.chars = nn.Embedding(len(CHARS), cfg.dim, padding_idx=PAD)
        self.out = nn.Linear(cfg.dim, len(CHARS))
        self.dim = cfg.dim

    def places(self, n, device):
        at = torch.arange(n, device=device).unsqueeze(1)
        rate = torch.exp(torch.arange(0, self.dim, 2, device=device) * (-math.log(1e4) / self.dim))
        return torch.cat([(at * rate).sin(), (at * rate).cos()], dim=1)

    def encode(self, feats, frames):
        x = self.front(feats.transpose(1, 2)).transpose(1, 2)
        blank = torch.arange(x.size(1), device=x.device) >= ((frames + 3) // 4).unsqueeze(1)
        return self.listen(x + self.places(x.size(1), x.device), src_key_padding_mask=blank), blank

    def decode(self, chars, memory, blank):
        n = chars.size(1)
        causal = nn.Transformer.generate_square_subsequent_mask(n, device=chars.device)
        x = self.chars(chars) + self.places(n, chars.device)
        x = self.spell(x, memory, tgt_mask=causal, memory_key_padding_mask=blank, tgt_is_causal=True)
        return self.out(x)

    def forward(self, batch):
        memory, blank = self.encode(batch.feats, batch.frames)
        return self.decode(batch.chars[:, :-1], memory, blank)


def on_device(loader, limit=None):
    lanes = pl.ParallelLoader(loader, [DEVICE])
    for n, batch in enumerate(lanes.per_device_loader(DEVICE)):
        if limit is not None and n >= limit:
            return
        yield Utterances(*batch)


def brief(**values):
    return " ".join(f"{name} {value:.3f}" for name, value in values.items())


def train_epoch(cfg, model, optimizer, schedule, loader, epoch):
    model.train()
    bar = tqdm(on_device(loader, cfg.per_epoch), total=cfg.per_epoch, disable=not MASTER)
    for batch in bar:
        logits = model(batch)
        wanted = batch.chars[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=0.1)
        right = ((logits.argmax(-1) == wanted) & (wanted != PAD)).sum() / (wanted != PAD).sum()
        optimizer.zero_grad()
        loss.backward()
        xm.reduce_gradients(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        optimizer.step()
        schedule.step()
        bar.set_postfix_str(brief(loss=loss, right=right, lr=schedule.get_last_lr()[0]))
    return loss.item()


def greedy(model, batch, longest):
    memory, blank = model.encode(batch.feats, batch.frames)
    ids = torch.full((batch.feats.size(0), 1), BOS, device=DEVICE)
    over = torch.zeros(batch.feats.size(0), dtype=torch.bool, device=DEVICE)
    for _ in range(longest):
        char = model.decode(ids, memory, blank)[:, -1].argmax(-1)
        over = over | (char == EOS)
        ids = torch.cat([ids, char.unsqueeze(1)], dim=1)
        if over.all():
            break
    return ids


def text_of(row):
    row = row[1:]
    row = row[: row.index(EOS)] if EOS in row else row
    return "".join(CHARS[i] for i in row if i > EOS)


def distance(a, b):
    line = np.arange(len(b) + 1)
    for i, x in enumerate(a, 1):
        last, line[0] = line[0], i
        for j, y in enumerate(b, 1):
            last, line[j] = line[j], min(line[j] + 1, line[j - 1] + 1, last + (x != y))
    return int(line[-1])


@torch.no_grad()
def evaluate(cfg, model, loader):
    model.eval()
    kept = [(greedy(model, batch, cfg.letters), batch.chars) for batch in on_device(loader)]
    wrong = total = 0
    for ids, chars in kept:
        for said, meant in zip(ids.tolist(), chars.tolist()):
            said, meant = text_of(said), text_of(meant)
            wrong += distance(said, meant)
            total += len(meant)
    return wrong / max(1, total)


def run(index, cfg):
    global DEVICE, MASTER
    DEVICE, MASTER = torch_xla.device(), xm.is_master_ordinal(local=False)
    torch.manual_seed(606)
    rank, world = xr.global_ordinal(), xr.world_size()

    model = Speller(cfg).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / cfg.warmup, math.sqrt(cfg.warmup / (n + 1)))
    )
    train, valid = Corpus(cfg, "train", mask=True), Corpus(cfg, "dev", mask=False)
    shares = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    pack = Pack(cfg.letters)
    loader = DataLoader(
        train, cfg.batch, sampler=shares, collate_fn=pack, num_workers=cfg.workers, drop_last=True
    )
    check = DataLoader(
        valid, cfg.batch, sampler=DistributedSampler(valid, world, rank, shuffle=False), collate_fn=pack, num_workers=2
    )

    for epoch in range(cfg.epochs):
        shares.set_epoch(epoch)
        last = train_epoch(cfg, model, optimizer, schedule, loader, epoch)
        cer = evaluate(cfg, model, check)
        xm.master_print(f"epoch {epoch} loss {last:.3f} cer {cer:.2%}")
        xm.save({"model": model.state_dict(), "cfg": asdict(cfg)}, os.path.join(cfg.out, f"{epoch:03d}.pt"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("--out", default="exp/tabla")
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    torch_xla.launch(run, args=(Cfg(corpus=given.corpus, out=given.out),))
