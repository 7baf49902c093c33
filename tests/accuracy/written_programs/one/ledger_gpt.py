"""GPT from scratch on ledgers and invoices.   python ledger_gpt.py corpus/ [--debug]"""
import logging
import math
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, IterableDataset

try:
    from tqdm.auto import tqdm
except ImportError:
    def tqdm(rows, **_):
        return rows

try:
    import wandb
except ImportError:
    wandb = None

try:
    from torch_xla.amp import syncfree
    Adam = syncfree.AdamW
except (ImportError, AttributeError):
    Adam = torch.optim.AdamW

logger = logging.getLogger("ledger")


@dataclass(frozen=True)
class Plan:
    corpus: str = "corpus"
    vocab: int = 16_384
    context: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 12
    batch: int = 8
    accumulate: int = 4
    steps: int = 60_000
    warmup: int = 2_000
    peak: float = 6e-4
    floor: float = 6e-5
    eval_every: int = 1_000
    eval_batches: int = 50
    cores: int = 8
    end_of_document: int = 3
    debug: bool = False


class Windows(IterableDataset):
    """Endless random windows; each core and each worker has its own generator."""

    def __init__(self, plan, part, seed):
        self.path, self.plan, self.seed = f"{plan.corpus}/{part}.bin", plan, seed

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        draw = np.random.default_rng([self.seed, info.id if info else 0])
        tokens = np.memmap(self.path, dtype=np.uint16, mode="r")
        while True:
            at = int(draw.integers(len(tokens) - self.plan.context - 1))
            yield torch.from_numpy(tokens[at: at + self.plan.context + 1].astype(np.int64))


def stream(plan, part, device, seed):
    rows = DataLoader(Windows(plan, part, seed), batch_size=plan.batch, num_workers=2)
    for ids in pl.MpDeviceLoader(rows, device):
        yield ids[:, :-1], ids[:, 1:]


class Block(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.heads = plan.heads
        self.before, self.between = nn.LayerNorm(plan.width), nn.LayerNorm(plan.width)
        self.qkv, self.merge = nn.Linear(plan.width, 3 * plan.width), nn.Linear(plan.width, plan.width)
        self.mlp = nn.Sequential(nn.Linear(plan.width, 4 * plan.width), nn.GELU(), nn.Linear(4 * plan.width, plan.width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.before(x)).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.tokens, self.places = nn.Embedding(plan.vocab, plan.width), nn.Embedding(plan.context, plan.width)
        self.blocks = nn.ModuleList(Block(plan) for _ in range(plan.layers))
        self.last = nn.LayerNorm(plan.width)
        self.out = nn.Linear(plan.width, plan.vocab, bias=False)
        self.apply(self._start)

    def _start(self, part):
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, std=0.02)

    def tie(self):
        self.out.weight = self.tokens.weight
        return self

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.out(self.last(x))


def rate(plan, step):
    if step < plan.warmup:
        return plan.peak * (step + 1) / plan.warmup
    share = (step - plan.warmup) / max(1, plan.steps - plan.warmup)
    return plan.floor + 0.5 * (plan.peak - plan.floor) * (1 + math.cos(math.pi * min(share, 1.0)))


def document_weights(targets, plan):
    """The first token behind the end of a document cannot be known: it counts a tenth."""
    flat = targets.reshape(-1)
    weights = torch.ones(flat.numel(), device=flat.device)
    ends = (flat[:-1] == plan.end_of_document).nonzero().squeeze(1)
    return weights.index_fill(0, ends + 1, 0.1)


def forward_loss(net, plan, pair):
    ids, targets = pair
    with torch.autocast("xla", dtype=torch.bfloat16):
        logits = net(ids)
    each = F.cross_entropy(logits.float().reshape(-1, plan.vocab), targets.reshape(-1), reduction="none")
    weights = document_weights(targets, plan)
    return (each * weights).sum() / weights.sum()


def update(net, optimizer, plan, step, pairs):
    for group in optimizer.param_groups:
        group["lr"] = rate(plan, step)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for pair in pairs:
        loss = forward_loss(net, plan, pair) / plan.accumulate
        loss.backward()
        total = total + loss.detach()
    xm.reduce_gradients(optimizer)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    return {"loss": total, "norm": norm}


def over_cores(value):
    xm.all_reduce(xm.REDUCE_SUM, value, scale=1.0 / xr.world_size())
    return value


@torch.no_grad()
def held_out(net, plan, pairs):
    net.eval()
    losses = [forward_loss(net, plan, pair) for pair in islice(pairs, plan.eval_batches)]
    net.train()
    mean = over_cores(torch.stack(losses).mean())
    torch_xla.sync()
    return mean.item()


def status(step, told):
    return f"{step:>6} " + " ".join(f"{key}={value:.3f}" for key, value in told.items())


def train(index, plan):
    logging.basicConfig(level=logging.INFO if index == 0 else logging.ERROR)
    torch.manual_seed(2024)
    device = torch_xla.device()
    net = GPT(plan).to(device).tie()
    xm.broadcast_master_param(net)
    print(f"model with {sum(p.numel() for p in net.parameters()) / 1e6:.1f} M parameters is ready")
    grouped = [[p for p in net.parameters() if p.ndim >= 2], [p for p in net.parameters() if p.ndim < 2]]
    optimizer = Adam([{"params": ps, "weight_decay": wd} for ps, wd in zip(grouped, (0.1, 0.0))], lr=plan.peak, betas=(0.9, 0.95))
    feed = stream(plan, "train", device, seed=1 + xr.global_ordinal())
    held = stream(plan, "held", device, seed=10_001 + xr.global_ordinal())
    master = xm.is_master_ordinal()
    if master and wandb is not None:
        wandb.init(project="ledger", config=asdict(plan))
    step_with = partial(update, net, optimizer, plan)
    for step in tqdm(range(plan.steps), disable=not master):
        told = step_with(step, islice(feed, plan.accumulate))
        logger.info(status(step, told))
        if step and step % plan.eval_every == 0:
            score = held_out(net, plan, held)
            if master and wandb is not None:
                wandb.log({"held": score, "lr": rate(plan, step)}, step=step)
            xm.save({"net": net.state_dict(), "plan": asdict(plan), "step": step}, f"{plan.corpus}/gpt.pt")


if __name__ == "__main__":
    folder, flags = (sys.argv[1:] or ["corpus"])[0], set(sys.argv[2:])
    plan = replace(Plan(), corpus=folder, debug="--debug" in flags)
    xmp.spawn(train, args=(plan,), nprocs=1 if plan.debug else plan.cores)
