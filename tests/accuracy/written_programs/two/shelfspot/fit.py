import argparse
import json
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend  # noqa: F401
import torch_xla.distributed.xla_multiprocessing as xmp

from centers import Centers, detection_loss, found
from shelves import loaders

CORES = int(os.environ.get("SHELF_CORES", "8"))
RUN = os.environ.get("SHELF_RUN", "/tmp/shelfspot")


class Scribe(threading.Thread):
    """Writes one JSON object a line; nobody waits for the disk."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.lines = path, queue.Queue()

    def run(self):
        with open(self.path, "a") as f:
            while (line := self.lines.get()) is not None:
                f.write(json.dumps(line) + "\n")


class LogMixin:
    scribe = None

    def open_log(self):
        if dist.get_rank() == 0:
            self.scribe = Scribe(os.path.join(RUN, "log.jsonl"))
            self.scribe.start()

    def write(self, **line):
        if self.scribe is not None:
            self.scribe.lines.put(line)

    def write_losses(self, step, heat, box):
        self.write(step=step, heat=heat.item(), box=box.item())


class CheckpointMixin:
    pool = ThreadPoolExecutor(max_workers=1)

    def store(self, epoch, recall):
        torch_xla.sync()
        weights = {name: value.cpu() for name, value in self.model.state_dict().items()}
        if dist.get_rank() == 0:
            self.pool.submit(torch.save, {"weights": weights, "epoch": epoch, "recall": recall}, self.path())

    def path(self):
        return os.path.join(RUN, "last.pt")

    def resume(self):
        if not os.path.exists(self.path()):
            return 0, 0.0
        saved = torch.load(self.path(), map_location=self.device)
        self.model.load_state_dict(saved["weights"])
        return saved["epoch"] + 1, saved["recall"]


class Fitter(LogMixin, CheckpointMixin):
    def __init__(self, args):
        self.args = args
        self.device = torch_xla.device()
        torch.manual_seed(99)
        self.model = Centers().to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=1e-4)
        train, valid = loaders(args.root, args.batch, dist.get_rank(), dist.get_world_size(), args.workers)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, args.lr, total_steps=args.epochs * len(train)
        )
        self.batches = pl.MpDeviceLoader(train, self.device)
        self.checks = pl.MpDeviceLoader(valid, self.device)
        self.step = 0

    def shuffle(self, epoch):
        sampler = getattr(self.batches, "sampler", None)
        if sampler is not None:
            sampler.set_epoch(epoch)

    def one_epoch(self):
        self.model.train()
        for photos, boxes, counts in self.batches:
            self.optimizer.zero_grad()
            heat, box = detection_loss(self.model(photos), boxes, counts)
            (heat + 0.1 * box).backward()
            xm.optimizer_step(self.optimizer)
            self.schedule.step()
            self.step += 1
            if self.step % 100 == 0:
                xm.add_step_closure(self.write_losses, args=(self.step, heat.detach(), box.detach()))

    @torch.no_grad()
    def recall(self):
        self.model.eval()
        hits, total = 0, 0
        for photos, boxes, counts in self.checks:
            got, there = found(self.model(photos), boxes, counts)
            hits, total = hits + got, total + there
        sums = torch.stack([hits, total])
        dist.all_reduce(sums)
        hits, total = sums.tolist()
        return hits / max(total, 1)

    def fit(self):
        self.open_log()
        epoch, best = self.resume()
        while epoch < self.args.epochs:
            self.shuffle(epoch)
            self.one_epoch()
            recall = self.recall()
            self.write(epoch=epoch, recall=recall)
            if recall > best:
                best = recall
                self.store(epoch, recall)
            epoch += 1
        self.pool.shutdown()


def entry(index, args):
    dist.init_process_group(args.backend, init_method="xla://")
    Fitter(args).fit()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--backend", default="nccl")
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--workers", type=int, default=8)
    args = ap.parse_args()
    os.makedirs(RUN, exist_ok=True)
    xmp.spawn(entry, args=(args,), nprocs=CORES)
