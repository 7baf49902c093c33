"""Values that were lost on their way: devices, norms, averaged models, batches of other makes.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "device-or-default in trainer class": """\
HEAD
class Trainer:
    def __init__(self, model, loader, opt, device=None):
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.loader = loader
        self.opt = opt
    def fit(self):
        for x, y in self.loader:
            x = x.to(self.device)
            loss = self.model(x).mean()
            loss.backward()
            xm.optimizer_step(self.opt, barrier=True)
            print(loss.item())  # !XLA101
""",
    "facts in a dict() by keyword": """\
HEAD
def fit(net, dl, opt):
    device = xm.xla_device()
    net = net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        z = net(x)
        facts = dict(gap=F.mse_loss(z, y), count=3)
        facts["gap"].backward()
        xm.optimizer_step(opt)
        if facts["gap"] > 3:  # !XLA104
            continue
        both = dict(facts, **facts)
        for key, value in both.items():
            print(key, value.item())  # !XLA101
""",
    "device if given else": """\
HEAD
class Engine:
    def __init__(self, net, batches, optim, dev: torch.device = None):
        self.dev = dev if dev is not None else torch.device("cpu")
        self.net = net.to(self.dev)
        self.batches = batches
        self.optim = optim
    def epoch(self):
        for x, y in self.batches:
            x = x.to(self.dev)
            out = self.net(x)
            loss = F.cross_entropy(out, y.to(self.dev))
            loss.backward()
            self.optim.step()
            xm.mark_step()
            acc = (out.argmax(1) == y).sum().item()  # !XLA101
""",
    "function default none": """\
HEAD
def fit(net, batches, optim, device=None):
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optim.step()
        xm.mark_step()
        total = loss.item()  # !XLA101
""",
    "grad norm": """\
HEAD
def fit(net, loader, optim):
    device = xm.xla_device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        xm.mark_step()
        print(norm.item())  # !XLA101
""",
    "grad norm from-import": """\
HEAD
from torch.nn.utils import clip_grad_norm_ as clip
def fit(net, loader, optim):
    device = xm.xla_device()
    net.to(device)
    for x, y in loader:
        x = x.to(device)
        loss = net(x).mean()
        loss.backward()
        n = float(clip(net.parameters(), 1.0))  # !XLA102
        xm.optimizer_step(optim)
        xm.mark_step()
""",
    "grad norm helper": """\
HEAD
def grad_norm(m):
    return torch.nn.utils.clip_grad_norm_(m.parameters(), 1e9)
def fit(net, loader, optim):
    device = xm.xla_device()
    net = net.to(device)
    for x, y in loader:
        x = x.to(device)
        loss = net(x).mean()
        loss.backward()
        optim.step()
        n = grad_norm(net)
        xm.mark_step()
        if n > 3:  # !XLA104
            print("large")
""",
    "fsdp clip method": """\
HEAD
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
def fit(net, loader, optim):
    device = xm.xla_device()
    net = FSDP(net.to(device))
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        loss.backward()
        n = net.clip_grad_norm_(1.0)
        optim.step()
        print(n.item())  # !XLA101
""",
    "ema imported": """\
HEAD
from ema import EMA
from data import loader, valid
def fit(net, optim):
    device = xm.xla_device()
    net = net.to(device)
    ema = EMA(net)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(optim)
    scores = []
    with torch.no_grad():
        for x, y in valid:
            out = ema(x.to(device)).float()
            scores.append(out.cpu())  # !XLA101
""",
    "ema module attribute": """\
HEAD
from timm.utils import ModelEmaV2
def evaluate(net, valid):
    device = xm.xla_device()
    net = net.to(device)
    ema = ModelEmaV2(net, decay=0.99)
    n = 0
    ema.module.eval()
    with torch.no_grad():
        for x, y in valid:
            x, y = x.to(device), y.to(device)
            out = ema.module(x)
            n += (out.argmax(1) == y).sum().item()  # !XLA101
""",
    "tokenizer batch encoding": """\
HEAD
from transformers import AutoTokenizer, AutoModel
def fit(texts):
    device = xm.xla_device()
    tokenizer = AutoTokenizer.from_pretrained("x")
    model = AutoModel.from_pretrained("x").to(device)
    optim = torch.optim.AdamW(model.parameters())
    for batch in texts:
        enc = tokenizer(batch, return_tensors="pt", padding="max_length", max_length=128).to(device)
        out = model(**enc)
        loss = out[0].mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        print(enc["input_ids"].sum().item())  # !XLA101
""",
    "tokenizer passed in": """\
HEAD
def fit(texts, tok, model, optim):
    device = xm.xla_device()
    for batch in texts:
        inputs = tok(batch, return_tensors="pt").to(device)
        loss = model(**inputs).loss
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        print(inputs.input_ids.max().item())  # !XLA101
""",
    "tokenizer dict move": """\
HEAD
def fit(texts, tok, model, optim):
    device = xm.xla_device()
    for batch in texts:
        inputs = tok(batch, return_tensors="pt")
        inputs = {k: v.to(device) for k, v in inputs.items()}
        loss = model(**inputs).loss
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        n = inputs["attention_mask"].sum().item()  # !XLA101
""",
    "clip tokenize": """\
HEAD
import clip
def fit(loader, model, optim):
    device = xm.xla_device()
    for images, texts in loader:
        tokens = clip.tokenize(texts).to(device)
        a = model.encode_image(images.to(device))
        b = model.encode_text(tokens)
        loss = (a - b).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        print(tokens.argmax(-1).tolist())  # !XLA101
""",
    "get_batch": """\
HEAD
def main(model, optim):
    device = xm.xla_device()
    data = torch.zeros(100000, dtype=torch.long)
    def get_batch():
        ix = torch.randint(len(data) - 8, (4,))
        x = torch.stack([data[i:i + 8] for i in ix])
        y = torch.stack([data[i + 1:i + 9] for i in ix])
        return x.to(device), y.to(device)
    for it in range(1000):
        x, y = get_batch()
        logits, loss = model(x, y)
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        print(it, loss.item())  # !XLA101
""",
    "get_batch from another module": """\
HEAD
from data import get_batch
def main(model, optim):
    device = xm.xla_device()
    model = model.to(device)
    for it in range(1000):
        x, y = get_batch("train")
        x, y = x.to(device), y.to(device)
        logits, loss = model(x, y)
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        print(it, loss.item())  # !XLA101
""",
    "next iter": """\
HEAD
def main(model, optim, dataset):
    device = xm.xla_device()
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, drop_last=True)
    it = iter(loader)
    for step in range(1000):
        try:
            batch = next(it)
        except StopIteration:
            it = iter(loader)
            batch = next(it)
        x, y = batch
        x = x.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y.to(device))
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
        n = (out.argmax(1) == y.to(device)).sum().item()  # !XLA101
""",
    "next of device loader": """\
HEAD
def main(model, optim, loader):
    device = xm.xla_device()
    para = pl.MpDeviceLoader(loader, device)
    batches = iter(para)
    for step in range(1000):
        x, y = next(batches)
        n = (y == 3).sum().item()  # !XLA101
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
""",
    "next method": """\
HEAD
def main(model, optim, loader):
    device = xm.xla_device()
    batches = iter(pl.MpDeviceLoader(loader, device))
    while True:
        x, y = batches.__next__()
        n = (y == 3).sum().item()  # !XLA101
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
""",
    "infinite generator": """\
HEAD
def cycle(dl):
    while True:
        for data in dl:
            yield data
def main(model, optim, dataset):
    device = xm.xla_device()
    dl = cycle(torch.utils.data.DataLoader(dataset, 8, drop_last=True))
    for step in range(1000):
        x = next(dl).to(device)
        n = x.sum().item()  # !XLA101
        loss = model(x).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
    "fabric to_device": """\
import torch
import lightning as L
from lightning.fabric.accelerators import XLAAccelerator
def main(model, dataset):
    fabric = L.Fabric(accelerator="tpu", devices=8)
    fabric.launch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    for step in range(100):
        x, y = get_data()
        x, y = fabric.to_device((x, y))
        loss = model(x, y)
        fabric.backward(loss)
        optimizer.step()
        n = x.sum().item()  # !XLA101
        print(loss.item())  # !XLA101
""",
    "fabric by another name": """\
import torch
from lightning.fabric import Fabric
def main(model, get_data):
    lt = Fabric(accelerator="tpu", devices=8)
    lt.launch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = lt.setup(model, optimizer)
    for step in range(100):
        x, y = lt.to_device(get_data())
        loss = model(x, y)
        lt.backward(loss)
        optimizer.step()
        n = x.sum().item()  # !XLA101
""",
    "self.fabric": """\
import torch
from lightning.fabric import Fabric
class T:
    def __init__(self):
        self.f = Fabric(accelerator="tpu", devices=8)
    def fit(self, model, get_data):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = self.f.setup(model, optimizer)
        loader = self.f.setup_dataloaders(torch.utils.data.DataLoader([], 8))
        for x, y in loader:
            loss = model(x).mean()
            self.f.backward(loss)
            optimizer.step()
            n = y.sum().item()  # !XLA101
""",
    "mesh reduce argument": """\
HEAD
def fit(net, loader, optim):
    device = xm.xla_device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        avg = xm.mesh_reduce("loss", loss.item(), lambda v: sum(v) / len(v))  # !XLA101 XLA423
""",
    "accelerator device in class": """\
import torch
from accelerate import Accelerator
import torch_xla.core.xla_model as xm
class T:
    def __init__(self):
        self.acc = Accelerator()
        self.device = self.acc.device
    def fit(self, model, loader, opt):
        model, opt, loader = self.acc.prepare(model, opt, loader)
        for x, y in loader:
            out = model(x)
            loss = out.mean()
            self.acc.backward(loss)
            opt.step()
            n = loss.item()  # !XLA101
""",
    "a loader of another file is moved by hand": """\
HEAD
from data import make
def fit(model, optim):
    device = torch_xla.device()
    train_loader = make()
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)  # !XLA603
        loss = model(x, y)
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
    "texts are tokenized in the step": """\
HEAD
def fit(texts, tok, model, optim):
    device = torch_xla.device()
    for batch in texts:
        enc = tok(batch, return_tensors="pt").to(device)  # !XLA603
        loss = model(**enc).loss
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
    "batches are cut by a helper": """\
HEAD
import numpy as np
def cut(data, device):
    at = np.random.randint(0, len(data) - 8)
    return torch.from_numpy(data[at:at + 8]).to(device)  # !XLA603
def fit(data, model, optim):
    device = torch_xla.device()
    while True:
        loss = model(cut(data, device)).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
    "next of a plain loader": """\
HEAD
def fit(model, optim, dataset):
    device = torch_xla.device()
    it = iter(torch.utils.data.DataLoader(dataset, 8, drop_last=True))
    for step in range(1000):
        x = next(it).to(device)  # !XLA603
        loss = model(x).mean()
        loss.backward()
        xm.optimizer_step(optim, barrier=True)
""",
}

#: What looks like it and is right.
HEALTHY = {
    "the loss is read after the loop": """\
HEAD
class Trainer:
    def __init__(self, model, loader, opt, device=None):
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device)
        self.loader, self.opt = loader, opt
    def fit(self):
        total = 0
        for x, y in pl.MpDeviceLoader(self.loader, self.device):
            loss = self.model(x).mean()
            loss.backward()
            xm.optimizer_step(self.opt)
            total = total + loss.detach()
        return total.item()
""",
    "the norm of gradients stays on the device": """\
HEAD
def fit(net, loader, optim):
    device = torch_xla.device()
    net = net.to(device)
    norms = []
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0))
        optim.step()
        print(len(norms))
""",
    "the norm of gradients of a program for GPUs": """\
import torch
def fit(net, loader, optim):
    for x, y in loader:
        loss = net(x).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        print(norm.item())
""",
    "an averaged model is updated": """\
HEAD
from ema import EMA
def fit(net, loader, optim):
    device = torch_xla.device()
    net = net.to(device)
    ema = EMA(net)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(optim)
        ema.update(net)
""",
    "tokens that are counted on the CPU": """\
HEAD
def fit(texts, tok, model, optim):
    device = torch_xla.device()
    batches = []
    for text in texts:
        enc = tok(text, return_tensors="pt", padding="max_length")
        if enc["attention_mask"].sum().item() > 3:
            batches.append(enc)
    for enc in pl.MpDeviceLoader(batches, device):
        loss = model(**enc).loss
        loss.backward()
        xm.optimizer_step(optim)
""",
    "a batch that next gives is still on the CPU": """\
HEAD
def main(model, optim, dataset, loader):
    device = torch_xla.device()
    names = iter(torch.utils.data.DataLoader(dataset, batch_size=8, drop_last=True))
    for x, y in pl.MpDeviceLoader(loader, device):
        count = (next(names) == 3).sum().item()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        print(count)
""",
    "next of a device loader ends the graph": """\
HEAD
def main(model, optim, loader):
    device = torch_xla.device()
    batches = iter(pl.MpDeviceLoader(loader, device))
    for step in range(1000):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
""",
    "a schedule of another package is asked for a number": """\
HEAD
from schedules import CosineSchedule
def main(model, optim, loader):
    device = torch_xla.device()
    schedule = CosineSchedule(0.1)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optim)
        rate = schedule(step)
        if rate > 0.1 and schedule.done(step):
            print(float(rate))
""",
    "a loader that another file may have made for the device": """\
HEAD
def fit(model, optim, train_loader, device):
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        loss = model(x, y)
        loss.backward()
        xm.optimizer_step(optim)
def main(model, optim, loader):
    device = torch_xla.device()
    fit(model, optim, pl.MpDeviceLoader(loader, device), device)
""",
    "dtype and place within the graph": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = model(x.to(torch.bfloat16)).to(device).mean()
        loss.backward()
        xm.optimizer_step(optim)
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = FAULTS[name].replace("HEAD\n", HEAD)
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    assert codes(HEALTHY[name].replace("HEAD\n", HEAD)) == []


STANDS_IN = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm

def main(rows):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    for x, y in rows:
        adam.zero_grad()
        out = net(x.to(device))
        error = out.square().mean()
        error.backward()
        xm.optimizer_step(adam)
        {value}
        history.append(score.item())
"""
SCORES = {
    "a number in its place": (
        "score = (out.argmax(-1) == 1).float().mean() if len(x) else torch.tensor(0.0)",
        True,
    ),
    "a number that grows": (
        "score = torch.zeros(1)\n        for one in out: score = score + one",
        True,
    ),
    "what the host computes": ("score = out.mean() if len(x) else torch.rand(4).mean()", False),
    "a number alone": ("score = torch.tensor(0.0)", False),
}


@pytest.mark.parametrize("case", SCORES)
def test_a_number_that_stands_in_for_a_result_is_no_result(case):
    value, read = SCORES[case]
    program = STANDS_IN.format(value=value)
    row = program.split("\n").index("        history.append(score.item())") + 1
    assert ((row, "XLA101") in found(program)) is read


ASKED = """
import os
from transformers import Trainer, TrainingArguments

settings = TrainingArguments("out", bf16=os.environ.get("{key}", "") {asked} "{kind}", no_cuda=True)
Trainer(net, settings, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("kind", "asked", "told"), [("TPU", "!=", True), ("XLA", "==", True), ("FSDP", "!=", False)]
)
def test_who_compares_what_it_runs_on_with_tpus_runs_on_tpus(kind, asked, told):
    program = ASKED.format(key="ACCELERATE_DISTRIBUTED_TYPE", kind=kind, asked=asked)
    assert ("XLA905" in {code for _, code in found(program)}) is told


PARTS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm

class Painter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        painter = torch.nn.Linear(8, 8)
        self.{adds}("painter", painter)
        self.{adds}("error", torch.nn.MSELoss())
    def forward(self, x):
        return self.error(self.painter(x), x)
    def keep(self, path):
        torch.save({{"painter": self.painter.state_dict()}}, path)  # !XLA721

def main(rows):
    net = Painter().to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    for x in rows:
        adam.zero_grad()
        error = net(x)
        error.backward()
        xm.optimizer_step(adam)
    net.keep("painter.pt")
"""


@pytest.mark.parametrize("adds", ["add_module", "register_module"])
def test_a_module_has_the_parts_that_it_adds_by_name(adds):
    program = PARTS.format(adds=adds)
    told = {(row, code) for row, code in found(program) if code == "XLA721"}
    assert told == marks(program)


KEYED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm

def total(outputs):
    error = outputs["error"]
    if outputs["parts"]:
        error = error + {used}
    return error

def main(net, rows):
    net = net.to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    for x in rows:
        adam.zero_grad()
        total(net(x)).backward()
        xm.optimizer_step(adam)
"""
USED = {
    'torch.stack(outputs["parts"]).mean()': False,
    'sum(part for part in outputs["parts"] if part.requires_grad)': False,
    'outputs["parts"].mean()': True,
}


@pytest.mark.parametrize("used", USED)
def test_what_a_function_stacks_is_asked_whether_it_is_empty(used):
    program = KEYED.format(used=used)
    assert ("XLA104" in codes(program)) is USED[used]


KINDS = """
import torch
import torch_xla.core.xla_model as xm

def {name}(device):
    if device is None:
        return False
    return torch.device(named(device)).type == "xla"

def keep(state, path, device):
    if {name}(device):
        xm.save(state, path)
        return
    torch.save(state, path)

net = torch.nn.Linear(2, 2).to(xm.xla_device())
keep(net.state_dict(), "net.pt", xm.xla_device())
"""


@pytest.mark.parametrize(("name", "told"), [("is_xla_device", False), ("same_device", True)])
def test_what_is_behind_the_end_of_the_way_for_xla_devices(name, told):
    assert ("XLA721" in codes(KINDS.format(name=name))) is told
