"""python train.py: intent classification of short support messages."""
import csv
import json
import pathlib
import zlib

import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

from registry import make, register
from runner import Runner

HERE = pathlib.Path(__file__).parent
CONFIG = {
    "model": {"type": "convtext", "vocab": 1 << 15, "dim": 192},
    "runner": {"type": "messages", "batch": 128},
    "train": HERE / "train.tsv",
    "valid": HERE / "valid.tsv",
    "log": HERE / "log.jsonl",
}


def grams(text, n=3):
    text = f"#{text.lower()}#"
    return [zlib.crc32(text[i:i + n].encode()) % ((1 << 15) - 1) + 1 for i in range(len(text) - n + 1)]


def read(path):
    with open(path, newline="") as f:
        return [(grams(text), label) for label, text in csv.reader(f, delimiter="\t") if text.strip()]


def encode(rows, names):
    return [(ids, names[label]) for ids, label in rows if label in names]


def as_batch(rows):
    width = max(len(ids) for ids, _ in rows)
    padded = [ids + [0] * (width - len(ids)) for ids, _ in rows]
    return torch.tensor(padded), torch.tensor([label for _, label in rows])


@register("runner")
class Messages(Runner):
    epochs = 15

    def __init__(self, log, **kw):
        super().__init__(**kw)
        self.log, self.low, self.stale = log, None, 0

    def make_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-2)

    def loss(self, ids, labels):
        return F.cross_entropy(self.model(ids), labels, label_smoothing=0.05)

    def after_step(self, loss):
        if self.low is None:
            self.low = loss
            return
        if (drop := self.low - loss) > 0:
            self.low, self.stale = self.low - 0.1 * drop, 0
            return
        self.stale += 1
        if self.step % self.log_every:
            return
        xm.master_print(f"step {self.step}: {self.stale} steps without progress")

    def after_epoch(self, epoch, scores):
        if not xm.is_master_ordinal:
            return
        row = {"epoch": epoch, "cores": xr.world_size(), **scores}
        with open(self.log, "a") as f:
            f.write(json.dumps(row) + "\n")
        print(row, flush=True)


def main():
    rows, held = read(CONFIG["train"]), read(CONFIG["valid"])
    names = {label: i for i, label in enumerate(sorted({label for _, label in rows}))}
    model = make("model", CONFIG["model"], classes=len(names))
    runner = make(
        "runner", CONFIG["runner"], model=model, log=CONFIG["log"], collate=as_batch,
        train=encode(rows, names), valid=encode(held, names),
    )
    torch_xla.launch(runner.run)


if __name__ == "__main__":
    main()
