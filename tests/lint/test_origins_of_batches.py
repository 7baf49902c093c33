"""Where batches, models and decisions come from: the same fault in the ways that programs have.

All programs are invented. ``# !XLA603`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
"""

#: What is moved by hand, and loops that end no graph.
BATCHES = {
    "a step of a trainer class": """\
class Trainer:
    def __init__(self, model, loader):
        self.device = xm.xla_device()
        self.model = model.to(self.device)
        self.loader = loader
        self.opt = torch.optim.AdamW(self.model.parameters())
    def step(self, batch):
        x, y = batch
        x = x.to(self.device)  # !XLA603
        loss = F.cross_entropy(self.model(x), y.to(self.device))
        loss.backward()
        xm.optimizer_step(self.opt, barrier=True)
    def fit(self):
        for batch in self.loader:
            self.step(batch)
""",
    "a helper of the file": """\
def to_device(batch, device):
    if isinstance(batch, dict):
        return {k: to_device(v, device) for k, v in batch.items()}
    return batch.to(device)
def train(model, loader, opt):
    device = xm.xla_device()
    model = model.to(device)
    for batch in loader:
        batch = to_device(batch, device)  # !XLA603
        model(batch["x"]).mean().backward()
        xm.optimizer_step(opt, barrier=True)
""",
    "a helper of another file, and what comes of it": """\
from utils import move_to_device
def train(model, loader, opt):
    device = xm.xla_device()
    model = model.to(device)
    for batch in loader:
        batch = move_to_device(batch, device)  # !XLA603
        loss = F.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        xm.optimizer_step(opt, barrier=True)
        print(batch["x"].mean().item())  # !XLA101
""",
    "next": """\
def run(model, loader, opt, steps):
    device = xm.xla_device()
    batches = iter(loader)
    for _ in range(steps):
        x, y = next(batches)
        x = x.to(device)  # !XLA603
        F.cross_entropy(model(x), y.to(device)).backward()
        opt.step()
        xm.mark_step()
""",
    "get_batch of another file": """\
device = xm.xla_device()
model = nn.Linear(8, 8).to(device)
opt = torch.optim.AdamW(model.parameters())
for step in range(5000):
    x, y = get_batch("train")
    x, y = x.to(device), y.to(device)  # !XLA603
    F.cross_entropy(model(x), y).backward()
    opt.step()  # !XLA301
""",
    "a loader of the module": """\
from data import train_loader
def main():
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in train_loader:
        x = x.to(device)  # !XLA603
        F.mse_loss(model(x), y.to(device)).backward()
        xm.optimizer_step(opt)  # !XLA301
main()
""",
    "a device that is a text": """\
from torch.optim import AdamW
device = "xla"
model = nn.Linear(8, 8).to(device)
opt = AdamW(model.parameters())
for batch in DataLoader(dataset, batch_size=8, drop_last=True):
    batch = {k: v.to(device) for k, v in batch.items()}  # !XLA603
    model(batch["x"]).mean().backward()
    opt.step()
    xm.mark_step()
""",
    "a counter that nobody counts up": """\
def fit(model, loader, opt, log_every=1):
    device = torch_xla.device()
    step = 0
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        if step % log_every == 0:
            print(loss.item())  # !XLA101
""",
    "helpers and metrics of other packages": """\
import evaluate
from utils import to_numpy
def test(model, loader):
    metric = evaluate.load("accuracy")
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
            out = model(x)
            scores.extend(to_numpy(out))  # !XLA101
            metric.add_batch(predictions=out.argmax(-1), references=y)  # !XLA101
""",
    "the loss that a closure gives": """\
def run(net, loader, opt):
    net.to(xm.xla_device())
    for x, y in pl.MpDeviceLoader(loader, xm.xla_device()):
        def closure():
            loss = F.mse_loss(net(x), y)
            loss.backward()
            return loss
        loss = opt.step(closure)
        print(loss.item())  # !XLA101
""",
    "noise that is moved in a line of its own": """\
def run(net, loader, opt):
    device = xm.xla_device()
    net.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        noise = torch.randn(8, 4, device="cpu")
        noise = noise.to(device)  # !XLA604
        times = torch.randint(0, 1000, (8,))
        times = times.to(device)  # !XLA604
        zeros = torch.zeros(8, device="cpu").to(device)  # !XLA604
        net(batch + noise, times).mean().backward()
        opt.step()
""",
}

SPAWNED = """
def main(rank, args):
    device = xm.xla_device()
    BODY
    opt = torch.optim.Adam(model.parameters())
    for x, y in pl.MpDeviceLoader(args.loader, device):
        F.mse_loss(model(x), y).backward()
        xm.optimizer_step(opt)
xmp.spawn(main, args=(args,))
"""

#: Models that the cores draw by themselves.
WEIGHTS = {
    "a seed through timm, weights by a setting": """\
from timm import create_model, utils
def main(rank, args):
    utils.random_seed(args.seed, rank)
    device = xm.xla_device()
    model = create_model(args.model, pretrained=args.pretrained)
    if args.resume:
        utils.resume_checkpoint(model, args.resume)
    model = convert_sync_batchnorm(model)
    model.to(device)  # !XLA426
    opt = create_optimizer(args, model)
    for x, y in pl.MpDeviceLoader(args.loader, device):
        F.mse_loss(model(x), y).backward()
        xm.optimizer_step(opt)
xmp.spawn(main, args=(args,))
""",
    "torchvision": "import torchvision"
    + SPAWNED.replace(
        "BODY", "model = torchvision.models.resnet18(num_classes=9).to(device)  # !XLA426"
    ),
    "a configuration": "from transformers import AutoConfig, AutoModelForCausalLM"
    + SPAWNED.replace(
        "BODY",
        'model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("a"))\n'
        "    model = model.to(device)  # !XLA426",
    ),
    "a seed in the caller of the class": """\
class Runner:
    def __init__(self, cfg):
        self.device = xm.xla_device()
        self.net = build(cfg)
        self.net.to(self.device)  # !XLA426
        self.opt = torch.optim.Adam(self.net.parameters())
    def fit(self, loader):
        for x, y in pl.MpDeviceLoader(loader, self.device):
            F.mse_loss(self.net(x), y).backward()
            xm.optimizer_step(self.opt)
def main(rank, cfg):
    torch.manual_seed(cfg.seed + rank)
    Runner(cfg).fit(cfg.loader)
xmp.spawn(main, args=(cfg,))
""",
}

#: Programs that torchrun starts, and decisions of one core.
CORES = {
    "a backend that is a setting": """\
import torch.distributed as dist
import torch_xla.distributed.xla_backend
def main(backend="xla"):
    dist.init_process_group(backend=backend)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    loader = DataLoader(dataset, batch_size=8, shuffle=True)  # !XLA402
    for x, y in pl.MpDeviceLoader(loader, device):
        F.mse_loss(model(x), y).backward()
        opt.step()  # !XLA302
main()
""",
    "early stopping that is counted": """\
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    best, bad = float("inf"), 0
    for epoch in range(10):
        for x, y in pl.MpDeviceLoader(args.loader, device):
            F.mse_loss(model(x), y).backward()
            xm.optimizer_step(opt)
        losses = []
        with torch.no_grad():
            for x, y in pl.MpDeviceLoader(args.val, device):
                losses.append(F.mse_loss(model(x), y).item())
        if np.mean(losses) < best:
            best, bad = np.mean(losses), 0
        else:
            bad += 1
        if bad > 5:
            break  # !XLA420
xmp.spawn(main, args=(args,))
""",
    "early stopping in an object": """\
class Stopper:
    def __init__(self):
        self.best, self.stop = None, False
    def __call__(self, loss):
        if self.best is None or loss < self.best:
            self.best = loss
        else:
            self.stop = True
def evaluate(model, loader):
    total = 0
    with torch.no_grad():
        for x, y in loader:
            total += F.mse_loss(model(x), y).item()
    return total / len(loader)
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    stopper = Stopper()
    for epoch in range(10):
        for x, y in pl.MpDeviceLoader(args.loader, device):
            F.mse_loss(model(x), y).backward()
            xm.optimizer_step(opt)
        stopper(evaluate(model, pl.MpDeviceLoader(args.val, device)))
        if stopper.stop:
            break  # !XLA420
xmp.spawn(main, args=(args,))
""",
    "a meter of another file": """\
from meters import AverageMeter
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
    for epoch in range(10):
        losses = AverageMeter()
        for x, y in pl.MpDeviceLoader(args.loader, device):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            xm.optimizer_step(opt)
            losses.update(loss.detach(), 8)
        scheduler.step(losses.avg)  # !XLA419
xmp.spawn(main, args=(args,))
""",
}

FAULTS = {**BATCHES, **WEIGHTS, **CORES}

#: What looks alike and is right: the code that must not be found in it.
HEALTHY = {
    "pretrained, moved to another precision first": (
        "XLA426",
        "from diffusers import UNet2DConditionModel"
        + SPAWNED.replace(
            "BODY",
            "torch.manual_seed(9 + rank)\n"
            '    model = UNet2DConditionModel.from_pretrained("a")\n'
            "    if args.bf16:\n"
            "        model = model.to(torch.bfloat16)\n"
            "    model.to(device)",
        ),
    ),
    "a loss that is moved": (
        "XLA426",
        "from losses import FocalLoss"
        + SPAWNED.replace(
            "BODY",
            "model = nn.Linear(3, 3).to(device)\n"
            "    xm.broadcast_master_param(model)\n"
            "    train_loss = FocalLoss(2).to(device)",
        ),
    ),
    "what the caller hands in may be a device loader": (
        "XLA301",
        """
def train(model, loader, opt):
    device = xm.xla_device()
    for x, y in loader:
        F.mse_loss(model(x.to(device)), y.to(device)).backward()
        opt.step()
""",
    ),
    "epochs behind model.eval()": (
        "XLA301",
        """
def train(model, loader, opt, args):
    loader = pl.MpDeviceLoader(loader, torch_xla.device())
    model.eval()
    for epoch in range(3):
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()
""",
    ),
    "a print that is quiet on the other cores": (
        "XLA401",
        """
import misc
def main(rank, args):
    misc.init_distributed_mode(args)
    print("hello")
xmp.spawn(main, args=(args,))
""",
    ),
    "a device loader beside": (
        "XLA603",
        """
from data import make_loader
def train(model, opt):
    device = xm.xla_device()
    loader = pl.MpDeviceLoader(make_loader(), device)
    batches = iter(loader)
    for step in range(100):
        x, y = next(batches)
        F.mse_loss(model(x.to(device)), y.to(device)).backward()
        opt.step()
""",
    ),
    "every core evaluates the whole": (
        "XLA420",
        """
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    whole = DataLoader(args.val, batch_size=8)
    best = 9.0
    for epoch in range(10):
        for x, y in pl.MpDeviceLoader(args.loader, device):
            F.mse_loss(model(x), y).backward()
            xm.optimizer_step(opt)
        total = 0
        with torch.no_grad():
            for x, y in pl.MpDeviceLoader(whole, device):
                total += F.mse_loss(model(x), y).item()
        if total > best:
            break
        best = total
xmp.spawn(main, args=(args,))
""",
    ),
    "whether there is an evaluation at all": (
        "XLA405",
        """
from data import create_loader
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    loader_eval = create_loader(args, rank=rank)
    if loader_eval is not None:
        xm.rendezvous("evaluate")
xmp.spawn(main, args=(args,))
""",
    ),
    "what is told whether to print": (
        "XLA419",
        """
from checkpoints import resume
def main(rank, args):
    torch.manual_seed(1)
    device = xm.xla_device()
    model = nn.Linear(3, 3).to(device)
    opt = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)
    start = resume(model, args.path, verbose=xm.is_master_ordinal())
    scheduler.step(start)
    for x, y in pl.MpDeviceLoader(args.loader, device):
        F.mse_loss(model(x), y).backward()
        xm.optimizer_step(opt)
xmp.spawn(main, args=(args,))
""",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_where_a_person_changes_it(name):
    program = HEAD + FAULTS[name]
    assert marks(program)
    assert marks(program) <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_what_looks_alike_is_not_told(name):
    code, program = HEALTHY[name]
    assert code not in {other for _, other in found(HEAD + program)}


def test_a_factory_that_names_its_device_is_not_rewritten():
    program = HEAD + BATCHES["noise that is moved in a line of its own"]
    result = engine.lint(Source("train.py", program))
    fixes = [item.fix for item in result.findings if item.code == "XLA604"]
    assert len(fixes) == 3
    assert not any(fixes)
