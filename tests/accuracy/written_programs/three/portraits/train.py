"""Age, pose and lighting of portraits (a saved Hugging Face dataset with an image column)."""
import json
import pathlib

import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.transforms import v2

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

from engine import Callback, Engine
from tasks import Portraits

SETTINGS = {
    "data": "/data/portraits",
    "out": "/data/portraits-run",
    "labels": {"pose": 5, "light": 4},
    "batch": 32,
    "accumulate": 4,
    "steps": 20000,
    "evaluate": 1000,
    "clip": 1.0,
    "rough": 10.0,
    "lr": 5e-4,
    "seed": 13,
}

CROP = v2.Compose([
    v2.RandomResizedCrop(224, scale=(0.5, 1.0)),
    v2.RandomHorizontalFlip(),
    v2.PILToTensor(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])
PLAIN = v2.Compose([v2.Resize((224, 224)), *CROP.transforms[2:]])


def reader(tf, labels):
    def read(rows):
        out = {"pixels": [tf(image.convert("RGB")) for image in rows["image"]]}
        out["age"] = [torch.tensor(float(a)) for a in rows["age"]]
        for key in labels:
            out[key] = [-1 if v is None else int(v) for v in rows[key]]
        return out
    return read


def loaders(s):
    data = load_from_disk(s["data"])
    train = data["train"].with_transform(reader(CROP, s["labels"]))
    val = data["val"].with_transform(reader(PLAIN, s["labels"]))
    world, rank = xr.world_size(), xr.global_ordinal()
    sampler = DistributedSampler(train, world, rank, shuffle=True, drop_last=True)
    return {
        "train": DataLoader(train, s["batch"], sampler=sampler, drop_last=True),
        "val": DataLoader(val, s["batch"], sampler=DistributedSampler(val, world, rank, shuffle=False), num_workers=2),
    }, sampler


class Journal(Callback):
    def __init__(self, out):
        self.out = pathlib.Path(out)
        self.lines = []

    def on_eval(self, engine, logs):
        row = {"step": engine.step, "rough": engine.rough, **{k: round(v, 4) for k, v in logs.items()}}
        self.lines.append(row)
        xm.master_print(json.dumps(row))
        if xm.is_master_ordinal():
            (self.out / "journal.json").write_text(json.dumps(self.lines))

    def on_end(self, engine):
        xm.master_print(f"{engine.step} steps in {engine.epoch + 1} epochs")


class Window(Callback):
    """Mean of the training losses since the last line."""

    def __init__(self, every=200):
        self.every, self.sums, self.n = every, {}, 0

    def on_step(self, engine, logs):
        self.sums = {k: self.sums.get(k, 0.0) + v for k, v in logs.items()}
        self.n += 1
        if self.n < self.every:
            return
        means = torch.stack(list(self.sums.values())) / self.n
        torch_xla.sync()
        line = dict(zip(self.sums, means.tolist()))
        xm.master_print(f"step {engine.step} first core's losses {line}")
        self.sums, self.n = {}, 0


class Checkpoint(Callback):
    def __init__(self, out):
        self.out = out

    def on_eval(self, engine, logs):
        xm.save(engine.task.state_dict(), f"{self.out}/last.pt")


def worker(index, s):
    torch.manual_seed(s["seed"])
    task = Portraits(s["labels"]).to(torch_xla.device())
    torch.manual_seed(s["seed"] + xr.global_ordinal())
    torch_xla.manual_seed(s["seed"] + xr.global_ordinal())
    optimizer = torch.optim.AdamW(task.parameters(), lr=s["lr"], weight_decay=0.05)
    pathlib.Path(s["out"]).mkdir(parents=True, exist_ok=True)
    batches, sampler = loaders(s)
    Engine(task, optimizer, batches, sampler, s, [Window(), Journal(s["out"]), Checkpoint(s["out"])]).run()


if __name__ == "__main__":
    torch_xla.launch(worker, args=(SETTINGS,))
