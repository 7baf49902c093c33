"""A byte-level language model over a folder of .gz texts; data x tensor parallel with SPMD.

PJRT_DEVICE=TPU python bytes_lm_spmd.py --texts /data/gutenberg --mode train
"""
import argparse
import gzip
import math
import pathlib
import random
from collections import defaultdict, deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
torch.set_float32_matmul_precision("highest")

DEVICES = xr.global_runtime_device_count()
TENSOR = 4 if DEVICES % 4 == 0 else 1
MESH = xs.Mesh(np.arange(DEVICES), (DEVICES // TENSOR, TENSOR), ("data", "tensor"))
DEVICE = torch_xla.device()
CONTEXT, DIM, LAYERS, HEADS = 1024, 1024, 16, 16
RECENT = deque(maxlen=200)
BY_PHASE = defaultdict(int)
SLOPES = torch.tensor([2 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)])


class Books(Dataset):
    def __init__(self, folder, train):
        files = sorted(pathlib.Path(folder).glob("*.gz"))
        self.files = [f for i, f in enumerate(files) if (i % 50 == 0) != train]
        self.per_file, self.train = 64, train

    def __len__(self):
        return len(self.files) * self.per_file

    def __getitem__(self, i):
        book, part = divmod(i, self.per_file)
        with gzip.open(self.files[book], "rb") as f:
            raw = np.frombuffer(f.read(), dtype=np.uint8)
        raw = np.pad(raw, (0, max(0, CONTEXT + 1 - len(raw))))
        room = len(raw) - CONTEXT - 1
        at = random.randint(0, room) if self.train else room * part // self.per_file
        return torch.from_numpy(raw[at:at + CONTEXT + 1].astype(np.int64))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv, self.o = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x, bias):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        att = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + bias
        x = x + self.o((att.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.silu(self.up(self.n2(x))))


class ByteLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(DIM), nn.Linear(DIM, 256, bias=False)
        far = (torch.arange(CONTEXT)[None, :] - torch.arange(CONTEXT)[:, None]).float()
        bias = SLOPES[:, None, None] * far.clamp(max=0)
        self.register_buffer("bias", bias.masked_fill(far > 0, float("-inf")), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.bias)
        return self.head(self.norm(x))


def shard(model):
    kinds = {"qkv": ("tensor", "data"), "up": ("tensor", "data"), "o": ("data", "tensor"), "down": ("data", "tensor")}
    for name, module in model.named_modules():
        if (spec := kinds.get(name.rsplit(".", 1)[-1])) is not None:
            xs.mark_sharding(module.weight, MESH, spec)
    return model


def batches(folder, size, train):
    data = Books(folder, train)
    sampler = DistributedSampler(data, xr.process_count(), xr.process_index(), shuffle=train, drop_last=True)
    loader = DataLoader(data, batch_size=size // xr.process_count(), sampler=sampler, drop_last=True)
    return sampler, pl.MpDeviceLoader(loader, DEVICE, input_sharding=xs.ShardingSpec(MESH, ("data", None)))


def nats(model, rows):
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.reshape(-1, 256), rows[:, 1:].reshape(-1))


@torch.no_grad()
def held_out(model, loader, most=50):
    model.eval()
    total, n = torch.zeros((), device=DEVICE), 0
    for n, rows in enumerate(loader, 1):
        total += nats(model, rows)
        if n == most:
            break
    model.train()
    return total.item() / max(n, 1) / math.log(2)


def save(model, optimizer, step, out):
    torch.save({"step": step, "model": {k: v.cpu() for k, v in model.state_dict().items()}}, out / f"{step:07d}.pt")


def tell(model, optimizer, step, out):
    print(f"step {step} phases {dict(BY_PHASE)} lr {optimizer.param_groups[0]['lr']:.2e}", flush=True)


def slow_tail(model, optimizer, step, out):
    with open(out / "tail.txt", "a") as f:
        f.write(f"{step} {np.percentile(RECENT, 95):.4f}\n")


CHORES = {"tell": (100, tell), "tail": (1000, slow_tail), "save": (5000, save)}


def phase(step, warmup, total):
    if step < warmup:
        return "warmup"
    return "cooldown" if step > 0.9 * total else "cruise"


def train(model, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    sampler, loader = batches(args.texts, args.batch, True)
    _, held = batches(args.texts, args.batch, False)
    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for rows in loader:
            if step == args.steps:
                break
            optimizer.zero_grad()
            loss = nats(model, rows)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            match now := phase(step, args.warmup, args.steps):
                case "warmup":
                    rate = args.lr * (step + 1) / args.warmup
                case "cruise" if norm > args.rough:
                    rate = args.lr * 0.5
                case "cooldown":
                    rate = args.lr * (args.steps - step) / (0.1 * args.steps)
                case _:
                    rate = args.lr
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            BY_PHASE[now] += 1
            RECENT.append(loss.detach())
            step += 1
            if step % args.check == 0:
                torch_xla.sync()
                bits = held_out(model, held)
                if xr.process_index() == 0:
                    print(f"step {step} held out {bits:.4f} bits per byte", flush=True)
            due = [do for every, do in CHORES.values() if step % every == 0]
            if not due or xr.process_index() != 0:
                continue
            torch_xla.sync()
            for do in due:
                do(model, optimizer, step, pathlib.Path(args.out))


def check(model, args):
    _, held = batches(args.texts, args.batch, False)
    blob = torch.load(sorted(pathlib.Path(args.out).glob("*.pt"))[-1], map_location="cpu")
    model.load_state_dict(blob["model"])
    bits = held_out(model, held, most=10 ** 6)
    if xr.process_index() == 0:
        print(f"{bits:.4f} bits per byte")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--texts", required=True)
    p.add_argument("--out", default="/data/bytes")
    p.add_argument("--mode", choices=["train", "check"], default="train")
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--steps", type=int, default=100_000)
    p.add_argument("--warmup", type=int, default=2000)
    p.add_argument("--check", type=int, default=2000)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--rough", type=float, default=5.0)
    args = p.parse_args()
    torch.manual_seed(8)
    {"train": train, "check": check}[args.mode](shard(ByteLM().to(DEVICE)), args)
