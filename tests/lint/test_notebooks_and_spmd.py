"""What notebooks, libraries and SPMD programs showed: own optimizers, new last layers, helpers.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_helpers import found, marks

from xladoctor.lint import run
from xladoctor.lint.engine import LintOptions

_CORES = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn
def fit(model, loader, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)
"""
_NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
"""

FAULTS = {
    "condition on all gradients": """\
import torch
import torch_xla.core.xla_model as xm
from torch.optim.optimizer import Optimizer
class Projected(Optimizer):
    def __init__(self, params, base, device):
        super().__init__(params, {})
        self.kept, self.base, self.device = list(params), base, device
    def _flat(self):
        parts = []
        for p in self.kept:
            if p.grad is None:
                parts.append(torch.zeros(p.numel(), device=self.device))
            else:
                parts.append(p.grad.view(-1))
        return torch.cat(parts)
    @torch.no_grad()
    def step(self, closure=None):
        grad = self._flat()
        if torch.isnan(grad).any() or torch.isinf(grad).any():  # !XLA104
            return self.base.step(closure)
        self.last = torch.norm(grad).item()  # !XLA101
        return self.base.step(closure)
""",
    "groups of parameters": """\
import math
import torch
import torch_xla.core.xla_model as xm
class Lion(torch.optim.Optimizer):
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.norm() > group["most"]:  # !XLA104
                    p.grad.div_(2)
                self.highest = float(p.grad.abs().max())  # !XLA102
                p.data.add_(p.grad, alpha=-group["lr"])
""",
    "states of parameters": """\
import torch
import torch_xla.core.xla_model as xm
class Scaled(torch.optim.Optimizer):
    @staticmethod
    def _rate(group, state):
        if group["by_step"]:
            return 1.0 / max(1, state["steps"])
        return max(group["least"], state["size"])  # !XLA104
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["steps"] = 0
                    state["mean"] = torch.zeros(p.grad.shape).to(p.grad.device)
                state["steps"] += 1
                fresh = torch.zeros(p.grad.shape).to(p.grad.device)  # !XLA604
                state["size"] = p.data.norm() / p.numel() ** 0.5
                p.data.add_(state["mean"] + fresh, alpha=-self._rate(group, state))
""",
    "two steps": """\
import torch
import torch_xla.core.xla_model as xm
class SAM(torch.optim.SGD):
    def first_step(self):
        norm = self._norm().item()  # !XLA101
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                p.add_(p.grad * scale)
    def _norm(self):
        parts = [p.grad.norm(p=2) for g in self.param_groups for p in g["params"]]
        return torch.stack(parts).norm()
""",
    "a head on a checkpoint": _CORES
    + """\
from transformers import AutoModelForSequenceClassification
def one(index, loader):
    device = xm.xla_device()
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")  # !XLA426
    model.to(device)
    fit(model, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a checkpoint by a name": _CORES
    + """\
from transformers import AutoModelForTokenClassification
NAME = "xlm-roberta-large"
def one(index, loader):
    device = xm.xla_device()
    net = AutoModelForTokenClassification.from_pretrained(NAME, num_labels=9)  # !XLA426
    net = net.to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a checkpoint that the caller names": _CORES
    + """\
import argparse
from transformers import AutoModelForSequenceClassification
parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
def one(index, loader):
    device = xm.xla_device()
    net = AutoModelForSequenceClassification.from_pretrained(args.name)  # !XLA426
    net.to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a head of timm": _CORES
    + """\
import timm
def one(index, loader):
    device = xm.xla_device()
    net = timm.create_model("resnet18", pretrained=True, num_classes=5).to(device)  # !XLA426
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a head put on": _CORES
    + """\
import torchvision
def one(index, loader):
    device = xm.xla_device()
    net = torchvision.models.resnet18(pretrained=True)
    net.fc = nn.Linear(512, 10)  # !XLA426
    net = net.to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a head among others": _CORES
    + """\
from torchvision import models
def one(index, loader):
    device = xm.xla_device()
    net = models.efficientnet_b0(weights="DEFAULT")
    net.classifier[1] = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10))  # !XLA426
    net.to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "wrapped by each core for itself": _CORES
    + _NET
    + """\
def one(index, loader):
    device = xm.xla_device()
    wrapped = xmp.MpModelWrapper(Net())  # !XLA426
    fit(wrapped.to(device), loader, device)
xmp.spawn(one, args=(None,), start_method="fork")
""",
    "closures with too much, too little": """\
import torch_xla.core.xla_model as xm
def log(step, loss, epoch=None):
    print(step, loss, epoch)
def after(device, step, loss, rate, epoch):
    xm.add_step_closure(log, args=(device, step, loss, rate, epoch))  # !XLA107
    xm.add_step_closure(log, (step,))  # !XLA107
""",
    "as many processes as are asked for, if any": """\
import argparse
import torch_xla.distributed.xla_multiprocessing as xmp
def one(index, args):
    print(args)
args = argparse.ArgumentParser().parse_args()
cores = args.cores if args.cores is not None and args.cores > 0 else None
xmp.spawn(one, args=(args,), nprocs=cores)  # !XLA404
""",
    "a collate function that asks another one": """\
import torch
import torch_xla
from torch.utils.data import DataLoader
device = torch_xla.device()
def encode(images):
    return images.to(device).mean(dim=1)  # !XLA605
def collate(batch):
    images = torch.stack([x for x, _ in batch])
    return encode(images), torch.tensor([y for _, y in batch])
def loader(data):
    return DataLoader(data, batch_size=8, collate_fn=collate)
""",
    "means in the middle of the step, once in a while": """\
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def train(model, optimizer, loader, device):
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = model(x).mean()
        if step % 20 == 0:
            mean = xm.mesh_reduce("loss", loss, lambda losses: sum(losses) / len(losses))  # !XLA113
            xm.master_print(mean)
        loss.backward()
        xm.optimizer_step(optimizer)
""",
}

FINE = {
    "questions that read nothing": """\
import torch
import torch_xla.core.xla_model as xm
class Mine(torch.optim.Optimizer):
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            if group["decay"] > 0 and group["lr"] != 0:
                for p in group["params"]:
                    if p.grad is None or not p.requires_grad:
                        continue
                    if p.grad.is_sparse:
                        raise RuntimeError("no")
                    p.data.add_(p.grad, alpha=-group["lr"])
        return loss
""",
    "a schedule": """\
import torch
import torch_xla.core.xla_model as xm
class Warm(torch.optim.lr_scheduler.LambdaLR):
    def step(self, epoch=None):
        if self.last.data > 3:
            self.low = self.last.grad.item()
        super().step(epoch)
""",
    "a checkpoint with its head": _CORES
    + """\
from transformers import AutoModelForSequenceClassification
def one(index, loader):
    device = xm.xla_device()
    name = "textattack/bert-base-uncased-SST-2"
    model = AutoModelForSequenceClassification.from_pretrained(name).to(device)
    fit(model, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a checkpoint with its head by default": _CORES
    + """\
import argparse
from transformers import AutoModelForSequenceClassification
parser = argparse.ArgumentParser()
parser.add_argument("--name", default="roberta-large-mnli")
args = parser.parse_args()
def one(index, loader):
    device = xm.xla_device()
    net = AutoModelForSequenceClassification.from_pretrained(args.name)
    net.to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a language model": _CORES
    + """\
from transformers import AutoModelForCausalLM
def one(index, loader):
    device = xm.xla_device()
    model = AutoModelForCausalLM.from_pretrained("gpt2").to(device)
    fit(model, loader, device)
xmp.spawn(one, args=(None,))
""",
    "as many classes as the checkpoint": _CORES
    + """\
import timm
def one(index, loader):
    device = xm.xla_device()
    net = timm.create_model("resnet50", pretrained=True, num_classes=1000).to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "a seed before the head": _CORES
    + """\
import timm
def one(index, loader):
    torch.manual_seed(7)
    device = xm.xla_device()
    net = timm.create_model("resnet50", pretrained=True, num_classes=3).to(device)
    fit(net, loader, device)
xmp.spawn(one, args=(None,))
""",
    "wrapped before the cores start": _CORES
    + _NET
    + """\
WRAPPED = xmp.MpModelWrapper(Net())
def one(index, loader):
    device = xm.xla_device()
    fit(WRAPPED.to(device), loader, device)
xmp.spawn(one, args=(None,), start_method="fork")
""",
    "pretrained, and layers without weights": _CORES
    + """\
from transformers import AutoModel
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = AutoModel.from_pretrained("bert-base-cased")
        self.drop = nn.Dropout(0.3)
    def forward(self, x):
        return self.drop(self.body(x)[1])
def one(index, loader):
    device = xm.xla_device()
    fit(Net().to(device), loader, device)
xmp.spawn(one, args=(None,))
""",
    "closures that fit": """\
import functools
import torch_xla.core.xla_model as xm
def log(step, loss, epoch=None):
    print(step, loss, epoch)
class Meter:
    def add(self, loss):
        print(loss)
def after(step, loss, epoch, args, meter):
    xm.add_step_closure(log, args=(step, loss))
    xm.add_step_closure(log, args=[step, loss, epoch])
    xm.add_step_closure(log, args=args)
    xm.add_step_closure(functools.partial(log, step), args=(loss,))
    xm.add_step_closure(lambda *rest: print(rest), args=(step, loss))
    xm.add_step_closure(Meter().add, args=(loss,))
""",
}

FINE["a mean of sums that the step has computed"] = """\
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
def train(model, optimizer, loader, device):
    total = before = 0.0
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = model(x).mean()
        loss.backward()
        total += loss.detach()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        if step % 50 == 0:
            mean = (total - before) / 50
            mean = xm.mesh_reduce("loss", mean, max)
            before = total.clone()
"""
#: What is looked at here; other rules may have something to say of these programs too.
_RULES = (
    *("XLA101", "XLA102", "XLA104", "XLA604", "XLA107", "XLA113", "XLA302"),
    *("XLA404", "XLA426", "XLA605"),
)


@pytest.mark.parametrize("name", FAULTS)
def test_found(name):
    program = FAULTS[name]
    assert {item for item in found(program) if item[1] in _RULES} == marks(program)


@pytest.mark.parametrize("name", FINE)
def test_silent(name):
    assert [item for item in found(FINE[name]) if item[1] in _RULES] == []


_PARTS = """\
from torch import nn
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        return self.layer(x)
def build(device):
    return Head().to(device)
"""
_MAIN = """\
import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
from parts import build
def train(loader):
    device = xm.xla_device()
    model = build(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(batch).mean().backward()
        xm.optimizer_step(optimizer)
if __name__ == "__main__":
    dist.init_process_group("xla", init_method="xla://")
    train([])
"""


@pytest.mark.parametrize(("seed", "expected"), [("", [9]), ("torch.manual_seed(3)\n    ", [])])
def test_a_model_that_a_file_without_a_loop_makes(tmp_path, seed, expected):
    (tmp_path / "parts.py").write_text(_PARTS)
    (tmp_path / "main.py").write_text(_MAIN.replace("model = build", f"{seed}model = build"))
    files = sorted(tmp_path.glob("*.py"))
    results = run.lint_files(files, run.Plan(LintOptions()), jobs=1)
    told = {
        Path(item.filename).name: [
            found.locations[0].row for found in item.result.findings if found.code == "XLA426"
        ]
        for item in results
    }
    assert told == {"parts.py": expected, "main.py": []}


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ('if settings.way == "spmd_fsdp":\n        xr.use_spmd()', True),
        ("xr.use_spmd()", False),
        ('if settings.device == "tpu":\n        xr.use_spmd()', False),
        ('use_spmd = getattr(xr, "use_spmd", None)\n    if use_spmd:\n        use_spmd()', False),
    ],
)
def test_what_runs_as_one_program_only_by_a_setting(start, told):
    program = f"""\
import torch_xla.runtime as xr
{_CORES}
def work(index, model, loader, settings):
    {start}
    device = torch_xla.device()
    fit(model.to(device), loader, device)
    if xr.global_ordinal() == 0:
        xm.rendezvous("done")
xmp.spawn(work, args=(None, None, None))
"""
    assert ("XLA405" in {code for _, code in found(program)}) is told
