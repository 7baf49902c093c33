"""Attention ASR for the dialect archive.  Features are log-mel frames made by the Kaldi recipe."""
import argparse
import queue
import random
import threading
import time

import numpy as np
import torch as th
import torch.nn.functional as Fn
import torch_xla.core.xla_model as tpu
import torch_xla.distributed.parallel_loader as conveyor
import torch_xla.distributed.xla_multiprocessing as fork_lift
import torch_xla.runtime as rt
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter

FRAMES, LETTERS, MEL = 1200, 160, 80
PAD, BOS, EOS = 0, 1, 2


class Archive(Dataset):
    def __init__(self, listing):
        with open(listing) as f:
            self.rows = [line.rstrip("\n").split("\t") for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        path, codes, rate = self.rows[i]
        return np.load(path), [int(c) for c in codes.split()], float(rate)


def to_frame(samples):
    speech = th.zeros(len(samples), FRAMES, MEL)
    text = th.full((len(samples), LETTERS), PAD)
    for i, (mel, codes, _) in enumerate(samples):
        mel, codes = mel[:FRAMES], [BOS, *codes[: LETTERS - 2], EOS]
        speech[i, : len(mel)] = th.from_numpy(mel)
        text[i, : len(codes)] = th.tensor(codes)
    return speech, text, th.tensor([s[2] for s in samples])


class Listener(nn.Module):
    def __init__(self, letters, width=256, deep=6):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(MEL, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU())
        self.when = nn.Parameter(th.randn(FRAMES // 4, width) * 0.02)
        self.where = nn.Parameter(th.randn(LETTERS, width) * 0.02)
        self.letters = nn.Embedding(letters, width)
        self.net = nn.Transformer(width, 4, deep, deep // 2, 1024, batch_first=True, norm_first=True)
        self.out, self.tempo = nn.Linear(width, letters), nn.Linear(width, 2)
        self.register_buffer("future", th.full((LETTERS, LETTERS), float("-inf")).triu(1), persistent=False)

    def listen(self, speech):
        return self.net.encoder(self.front(speech.transpose(1, 2)).transpose(1, 2) + self.when)

    def spell(self, memory, text):
        size = text.size(1)
        x = self.letters(text) + self.where[:size]
        return self.out(self.net.decoder(x, memory, tgt_mask=self.future[:size, :size]))

    def forward(self, speech, text):
        memory = self.listen(speech)
        mean, spread = self.tempo(memory.mean(1)).unbind(-1)
        return self.spell(memory, text), mean, Fn.softplus(spread) + 1e-3


@th.no_grad()
def greedy(net, speech):
    memory = net.listen(speech)
    text = th.full((speech.size(0), LETTERS), PAD, device=speech.device)
    at = th.zeros(1, dtype=th.long, device=speech.device)
    text = text.index_fill(1, at, BOS)
    for _ in range(LETTERS - 1):
        best = net.spell(memory, text).index_select(1, at).argmax(-1)
        at = at + 1
        text = text.index_copy(1, at, best)
        tpu.mark_step()
    return text


class Scribe(threading.Thread):
    """Everything that touches the disk happens here."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.inbox, self.folder = queue.Queue(), folder
        self.start()

    def run(self):
        board = SummaryWriter(self.folder)
        while (job := self.inbox.get()) is not None:
            kind, name, value, step = job
            if kind == "scalar":
                board.add_scalar(name, value, step)
            else:
                th.save(value, f"{self.folder}/{name}.pt")
        board.close()


class Recipe:
    def __init__(self, opts):
        self.opts, self.step = opts, 0
        self.began = time.time()
        self.scribe = Scribe(opts.out) if rt.global_ordinal() == 0 else None
        th.manual_seed(opts.seed)
        self.device = tpu.xla_device()
        self.net = self.build().to(self.device)
        self.opt = th.optim.AdamW(self.net.parameters(), lr=opts.lr, betas=(0.9, 0.98))

    def build(self): raise NotImplementedError
    def augment(self, speech): return speech
    def loss_of(self, batch): raise NotImplementedError
    def epoch_done(self, epoch): pass

    def note(self, name, value):
        if self.scribe:
            self.scribe.inbox.put(("scalar", name, value, self.step))

    def run(self, train, sampler):
        for epoch in range(self.opts.epochs):
            sampler.set_epoch(epoch)
            self.net.train()
            for batch in conveyor.MpDeviceLoader(train, self.device):
                self.opt.zero_grad()
                parts = self.loss_of(batch)
                sum(parts.values()).backward()
                tpu.optimizer_step(self.opt)
                self.step += 1
                if self.step % 200 == 0:
                    told = {name: part.item() for name, part in parts.items()}
                    for name, number in told.items():
                        self.note(name, number)
                if time.time() - self.began > 3600 * self.opts.hours:
                    return self.epoch_done(epoch)
            self.epoch_done(epoch)


class DialectRecipe(Recipe):
    def __init__(self, opts, held, alphabet):
        self.alphabet = alphabet
        super().__init__(opts)
        self.held = conveyor.MpDeviceLoader(held, self.device)
        self.best = 1.0

    def build(self):
        return Listener(len(self.alphabet))

    def augment(self, speech):
        for _ in range(2):
            width = random.randint(10, 60)
            left = random.randrange(FRAMES - width)
            speech[:, left:left + width] = 0.0
        keep = th.rand(speech.size(0), 1, MEL, device=speech.device).gt(0.08)
        return speech * keep

    def loss_of(self, batch):
        speech, text, rate = batch
        logits, mean, variance = self.net(self.augment(speech), text[:, :-1])
        goal = text[:, 1:]
        kept = logits[goal != PAD]
        letters = Fn.cross_entropy(kept, goal[goal != PAD], label_smoothing=0.1)
        tempo = Fn.gaussian_nll_loss(mean, rate, variance)
        return {"letters": letters, "tempo": 0.1 * tempo}

    def epoch_done(self, epoch):
        self.net.eval()
        said, meant = [], []
        for speech, text, _ in self.held:
            said.append(greedy(self.net, speech))
            meant.append(text)
        said, meant = th.cat(said).cpu(), th.cat(meant).cpu()
        wrong = sum(edits(self.clean(a), self.clean(b)) for a, b in zip(said.tolist(), meant.tolist()))
        whole = tpu.mesh_reduce("cer", (wrong, sum(len(self.clean(b)) for b in meant.tolist())), lambda all_: [sum(x) for x in zip(*all_)])
        cer = whole[0] / max(whole[1], 1)
        self.note("held/cer", cer)
        tpu.master_print(f"epoch {epoch} cer {cer:.2%}")
        weights = {k: v.cpu() for k, v in self.net.state_dict().items()}
        if self.scribe and cer < self.best:
            self.scribe.inbox.put(("weights", "best", weights, self.step))
        self.best = min(self.best, cer)

    def clean(self, codes):
        end = codes.index(EOS) if EOS in codes else len(codes)
        return [c for c in codes[:end] if c > EOS]


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def main(index, opts):
    with open(opts.alphabet) as f:
        alphabet = f.read().splitlines()
    rows, held = Archive(opts.train), Archive(opts.held)
    share = {"num_replicas": rt.world_size(), "rank": rt.global_ordinal()}
    sampler = DistributedSampler(rows, **share)
    train = DataLoader(rows, opts.batch, sampler=sampler, collate_fn=to_frame, num_workers=8, drop_last=True)
    dev = DataLoader(held, opts.batch, sampler=DistributedSampler(held, shuffle=False, **share), collate_fn=to_frame, num_workers=2, drop_last=True)
    random.seed(opts.seed + index)
    DialectRecipe(opts, dev, alphabet).run(train, sampler)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for flag, default in dict(train="train.tsv", held="held.tsv", alphabet="letters.txt", out="runs/dialect").items():
        ap.add_argument("--" + flag, default=default)
    for flag, default in dict(batch=16, epochs=60, seed=9, lr=5e-4, hours=11.5).items():
        ap.add_argument("--" + flag, type=type(default), default=default)
    fork_lift.spawn(main, args=(ap.parse_args(),))
