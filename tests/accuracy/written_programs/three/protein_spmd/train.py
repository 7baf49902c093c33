"""Secondary structure + solvent exposure, FSDPv2 over all chips of a pod slice."""
import argparse
import functools
import json
import os
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)

from data import LENGTH, make_loader
from nets import Layer, Trunk, build_heads


@dataclass
class TrainState:
    trunk: nn.Module
    heads: nn.ModuleDict
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    schedule: object
    step: int = 0
    log: list = field(default_factory=list)

    def parameters(self):
        yield from self.trunk.parameters()
        yield from self.heads.parameters()

    def mode(self, train):
        self.trunk.train(train)
        self.heads.train(train)


def host(stats):
    return {k: round(v.item(), 5) for k, v in stats.items()}


class TrainStep:
    def __init__(self, weights, clip):
        self.weights, self.clip = weights, clip

    def __call__(self, state, batch):
        stats = {}
        with torch.autocast("xla", dtype=torch.bfloat16):
            h = state.trunk(batch["ids"], batch["pad"])
            outs = {k: head(h) for k, head in state.heads.items()}
        total = 0.0
        for k, head in state.heads.items():
            part = head.loss(outs[k].float(), batch)
            total = total + self.weights[k] * part
            stats[f"{k}/loss"] = part.detach()
            stats[f"{k}/score"] = head.score(outs[k].detach(), batch)
        state.optimizer.zero_grad()
        state.scaler.scale(total).backward()
        state.scaler.unscale_(state.optimizer)
        stats["norm"] = nn.utils.clip_grad_norm_(list(state.parameters()), self.clip)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.schedule.step()
        state.step += 1
        return stats


class EvalStep:
    def __call__(self, state, batch):
        h = state.trunk(batch["ids"], batch["pad"])
        return {k: head.score(head(h), batch) for k, head in state.heads.items()}


def evaluate(state, loader):
    state.mode(False)
    run, sums, n = EvalStep(), defaultdict(float), 0
    with torch.no_grad():
        for batch in loader:
            for k, v in run(state, batch).items():
                sums[k] = sums[k] + v
            n += 1
    state.mode(True)
    return {k: (v / max(n, 1)).item() for k, v in sums.items()}


def save(state, where):
    os.makedirs(where, exist_ok=True)
    blob = {
        "trunk": {k: v.cpu() for k, v in state.trunk.state_dict().items()},
        "heads": {k: v.cpu() for k, v in state.heads.state_dict().items()},
        "step": state.step,
    }
    torch.save(blob, os.path.join(where, f"step{state.step}.pt"))


def main(args):
    xr.use_spmd()
    torch.manual_seed(args.seed)
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(count), (count, 1), ("fsdp", "model"))
    device = torch_xla.device()

    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    trunk = FSDPv2(Trunk(22, args.dim, args.depth, 8, LENGTH).to(device), mesh=mesh, auto_wrap_policy=policy)
    heads = build_heads(args.dim).to(device)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=args.lr, weight_decay=0.05)
    state = TrainState(
        trunk=trunk,
        heads=heads,
        optimizer=optimizer,
        scaler=torch.amp.GradScaler("xla"),
        schedule=torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps),
    )
    train, sampler = make_loader(args.root, "train", args.batch, mesh, device, True)
    valid, _ = make_loader(args.root, "valid", args.batch, mesh, device, False)

    step_fn = TrainStep({"ss": 1.0, "rsa": 2.0}, clip=1.0)
    epoch = 0
    while state.step < args.steps:
        sampler.set_epoch(epoch)
        for batch in train:
            stats = step_fn(state, batch)
            state.log.append(host(stats))
            if state.step >= args.steps:
                break
        scores = evaluate(state, valid)
        torch_xla.sync()
        if xr.process_index() == 0:
            save(state, args.out)
            with open(os.path.join(args.out, "log.jsonl"), "a") as f:
                f.writelines(json.dumps(row) + "\n" for row in state.log)
            print(f"epoch {epoch} step {state.step}", scores, flush=True)
        state.log.clear()
        epoch += 1


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--root", default="/data/chains")
    p.add_argument("--out", default="/data/runs/ss")
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--depth", type=int, default=12)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=40000)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--seed", type=int, default=3)
    main(p.parse_args())
