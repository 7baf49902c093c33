"""python train.py --root /data/birds"""
import argparse
import json
import os
from collections import OrderedDict

import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

from engine import Engine, Mixup, Shadow, Tagger
from sound import ClipFolder, loader_for


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--root", required=True)
    p.add_argument("--classes", type=int, default=264)
    p.add_argument("--mels", type=int, default=128)
    p.add_argument("--crop", type=int, default=1000)
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--workers", type=int, default=6)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--opt", default="adamw", choices=["adamw", "nadam", "sgd"])
    p.add_argument("--loss", default="asymmetric")
    p.add_argument("--mixup", type=float, default=0.4)
    p.add_argument("--smoothing", type=float, default=0.1)
    p.add_argument("--clip", type=float, default=2.0)
    p.add_argument("--no-amp", dest="amp", action="store_false")
    p.add_argument("--workers-per-host", type=int, default=4, help="TPU cores of this host")
    p.add_argument("--out", default="out/birds")
    return vars(p.parse_args())


def optimizer_for(model, opts):
    params = model.parameters()
    match opts["opt"]:
        case "adamw":
            return torch.optim.AdamW(params, lr=opts["lr"], weight_decay=0.03)
        case "nadam":
            return torch.optim.NAdam(params, lr=opts["lr"])
        case _:
            return torch.optim.SGD(params, lr=opts["lr"], momentum=0.9, nesterov=True)


def report(epoch, figures):
    if xm.is_master_ordinal and epoch % 5 == 0:
        print(json.dumps({"epoch": epoch, **figures}))


def remember(path, engine, figures):
    kept = OrderedDict(model=engine.model.state_dict(), ema=engine.shadow.module.state_dict(), figures=figures)
    xm.save(kept, path)


def work(index, opts):
    torch.manual_seed(2023)
    device = xm.xla_device()
    rank, world = xr.global_ordinal(), xr.world_size()

    model = Tagger(opts["mels"], opts["classes"]).to(device)
    optimizer = optimizer_for(model, opts)
    shadow = Shadow(model)
    mixup = Mixup(opts["mixup"], opts["classes"], opts["smoothing"]) if opts["mixup"] > 0 else None

    train_set = ClipFolder(opts["root"], "train.csv", opts["classes"], opts["crop"])
    valid_set = ClipFolder(opts["root"], "valid.csv", opts["classes"])
    loader = loader_for(train_set, opts, rank, world, training=True)
    opts["updates"] = opts["epochs"] * len(loader)
    opts["warmup"] = min(2000, opts["updates"] // 10)
    batches = pl.MpDeviceLoader(loader, device)
    checks = pl.MpDeviceLoader(loader_for(valid_set, opts, rank, world, training=False), device)

    engine = Engine(model, optimizer, opts, shadow, mixup)
    best = -1.0
    for epoch in range(opts["epochs"]):
        loader.sampler.set_epoch(epoch)
        figures = engine.train_epoch(batches)
        figures.update(engine.evaluate(checks, opts["classes"]))
        report(epoch, figures)
        if figures["macro_f1"] > best:
            best = figures["macro_f1"]
            remember(os.path.join(opts["out"], "best.pt"), engine, figures)
    xm.master_print(f"best macro F1 {best:.4f}")


if __name__ == "__main__":
    settings = parse()
    os.makedirs(settings["out"], exist_ok=True)
    xmp.spawn(work, args=(settings,), nprocs=settings["workers_per_host"])
