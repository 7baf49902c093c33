"""Helpers that move, pad, step and save: what a program's own short functions hide from a reader.

All programs are invented. ``# !XLA603`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, found_in_files, marks

HEAD = """\
import time
import evaluate
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader
"""

#: One short function that moves everything: models, batches, noise.
MOVES = {
    "a batch and numbers of the host": """\
DEVICE = xm.xla_device()
def gpu(x):
    return x.to(DEVICE)
def train(net, loader, steps):
    net = gpu(net)
    optim = torch.optim.Adam(net.parameters())
    for image, _ in loader:
        optim.zero_grad()
        image = gpu(image)  # !XLA603
        t = torch.randint(0, steps, (8,))
        t = gpu(t)  # !XLA604
        noise = gpu(torch.randn(8, 3))  # !XLA604
        net(image, t, noise).mean().backward()
        optim.step()
        xm.mark_step()
""",
    "a method of the trainer": """\
class Trainer:
    def __init__(self, net, data):
        self.device = xm.xla_device()
        self.net = net.to(self.device)
        self.data = data
        self.optim = torch.optim.Adam(self.net.parameters())
    def put(self, x):
        \"\"\"To the device.\"\"\"
        return x.to(self.device)
    def fit(self):
        for i, batch in enumerate(self.data):
            self.optim.zero_grad()
            x = self.put(batch)  # !XLA603
            self.net(x, self.put(torch.randn(8, 3))).mean().backward()  # !XLA604
            self.optim.step()
            xm.mark_step()
""",
    "a lambda": """\
device = xm.xla_device()
gpu = lambda x: x.to(device)
def train(net, loader):
    net = gpu(net)
    optim = torch.optim.Adam(net.parameters())
    for x, y in loader:
        optim.zero_grad()
        F.cross_entropy(net(gpu(x)), gpu(y)).backward()  # !XLA603
        optim.step()
        xm.mark_step()
""",
}

#: Padding that stands behind what the loader is given.
PADS = {
    "in a function that the collate function calls": """\
def process(batch, words):
    sounds, lengths = [], []
    for sound, text in batch:
        sounds.append(sound)
        lengths.append(sound.shape[0] // 2)
    sounds = nn.utils.rnn.pad_sequence(sounds, batch_first=True)  # !XLA209
    return sounds, torch.tensor(lengths)
def collate(batch):
    return process(batch, WORDS)
loader = DataLoader(DATA, batch_size=8, collate_fn=collate)
""",
    "in a lambda's": """\
def process(batch, kind):
    return nn.utils.rnn.pad_sequence([one for one, _ in batch], batch_first=True)  # !XLA209
loader = DataLoader(DATA, batch_size=8, collate_fn=lambda batch: process(batch, "train"))
""",
    "in an object's": """\
class Collate:
    def __init__(self, pad):
        self.pad = pad
    def __call__(self, batch):
        ids = [one["ids"] for one in batch]
        return nn.utils.rnn.pad_sequence(ids, True, self.pad)  # !XLA209
loader = DataLoader(DATA, batch_size=8, collate_fn=Collate(0))
""",
    "rounded up behind it": """\
def collate(batch):
    ids = nn.utils.rnn.pad_sequence(batch, batch_first=True)
    length = (ids.shape[1] + 127) // 128 * 128
    return ids.new_zeros(len(batch), length)
loader = DataLoader(DATA, batch_size=8, collate_fn=collate)
""",
}

CORES = """\
def train(model, loader, device):
    optim = torch.optim.Adam(model.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        F.cross_entropy(model(x), y).backward()
        xm.optimizer_step(optim)
"""
#: What every core does, and what one core's number is.
STARTS = {
    "weights are sent before the model is made": """\
def _mp_fn(rank, loader):
    device = xm.xla_device()
    xm.broadcast_master_param(model)
    model = nn.Sequential(nn.Linear(8, 8), Head()).to(device)  # !XLA426
    train(model, loader, device)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)
    def forward(self, x):
        return self.out(x)
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(LOADER,))
""",
    "the seed comes after the model": """\
from networks import Net
from helpers import set_seed
def on_core(index, loader):
    net = Net(64)  # !XLA426
    set_seed(7)
    device = xm.xla_device()
    net = net.to(device)
    train(net, loader, device)
if __name__ == "__main__":
    xmp.spawn(on_core, args=([],))
""",
    "the seed comes first": """\
from networks import Net
from helpers import set_seed
def on_core(index, loader):
    set_seed(7)
    net = Net(64)
    device = xm.xla_device()
    net = net.to(device)
    train(net, loader, device)
if __name__ == "__main__":
    xmp.spawn(on_core, args=([],))
""",
    "the function that trains seeds itself": """\
from networks import Net
from helpers import set_seed
def run(index, loader):
    set_seed(7)
    device = xm.xla_device()
    NET.to(device)
    train(NET, loader, device)
def on_core(index, loader):
    global NET
    NET = Net(64)  # !XLA426
    run(index, loader)
if __name__ == "__main__":
    xmp.spawn(on_core, args=([],))
""",
    "weights are sent behind it": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)
    def forward(self, x):
        return self.out(x)
def _mp_fn(rank, loader):
    device = xm.xla_device()
    model = Net().to(device)
    xm.broadcast_master_param(model)
    train(model, loader, device)
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(LOADER,))
""",
    "the core's number has no parameter": """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)
    def forward(self, x):
        return self.out(x)
def main(args):
    torch.manual_seed(args.seed)
    device = xm.xla_device()
    model = Net().to(device)
    train(model, args.loader, device)
    if args.save:
        torch.save(model.state_dict(), "net.pt")  # !XLA406 XLA721
if __name__ == "__main__":
    xmp.spawn(main, args=(ARGS,))  # !XLA408
""",
}

#: Where the steps stand, and how often something happens.
STEPS = {
    "the last step of an epoch stands behind its loop": """\
def epoch(model, loader, criterion, device, optim=None, every=4):
    values = []
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        values.append(loss.detach())
        if optim is not None:
            loss.backward()
            if i % every == every - 1:
                xm.optimizer_step(optim)
                optim.zero_grad()
    if optim is not None:
        xm.optimizer_step(optim)
        optim.zero_grad()
    total = torch.stack(values).mean()
    return total.item()
def fit(model, train_loader, criterion, settings):
    device = xm.xla_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    for _ in range(settings.epochs):
        model.train()
        print(epoch(model, pl.MpDeviceLoader(train_loader, device), criterion, device, optim))
""",
    "a step that a function gives back": """\
def make_step(generator, judge):
    def run(x, y):
        judge.optim.zero_grad()
        loss = judge(generator(x), y).mean()
        loss.backward()
        xm.optimizer_step(judge.optim)
        return {"loss": float(loss.item())}  # !XLA101
    return run
""",
    "clipped where another file tells the rank": """\
import utils
def one_epoch(model, criterion, loader, optim, device, most=1.0, every=2):
    rank = utils.get_rank()
    for i, (x, y) in enumerate(loader):
        with torch_xla.step():
            loss = criterion(model(x), y)
            loss.backward()
            if (i + 1) % every == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), most)  # !XLA303
                xm.optimizer_step(optim, barrier=True)
                optim.zero_grad()
        soon = i < 5 or (i + 1) % 100 == 0
        if soon:
            print(rank, float(loss.item()))
        if i % 10 == 0 or i <= 3:
            print(rank, loss.item())
""",
    "a metric that reads each batch": """\
def evaluate_all(model, data):
    device = xm.xla_device()
    model.to(device)
    metric = evaluate.load("accuracy")
    model.eval()
    for batch in DataLoader(data, batch_size=8, num_workers=4):
        batch = {k: v.to(device) for k, v in batch.items()}  # !XLA603
        with torch.no_grad():
            answer = model(**batch).logits.argmax(dim=-1)
        metric.add_batch(predictions=answer, references=batch["labels"])  # !XLA101
    return metric.compute()
""",
}

#: What Lightning's Trainer is given, and where it is made.
TRAINERS = {
    "a default of the command line that TPUs do not have": """\
import argparse
import lightning as L
parser = argparse.ArgumentParser()
parser.add_argument("--accelerator", default="tpu", choices=["tpu", "gpu"])
parser.add_argument("--precision", default="bf16-mixed")  # !XLA901
args = parser.parse_args()
trainer = L.Trainer(accelerator=args.accelerator, precision=args.precision)
""",
    "a Trainer on each of the cores": """\
import lightning as L
def main(rank, net, data):
    trainer = L.Trainer(accelerator="tpu", devices="auto", strategy="xla")
    trainer.fit(net, data)
if __name__ == "__main__":
    xmp.spawn(main, args=(NET, DATA))  # !XLA407
""",
    "a Trainer of one device": """\
import lightning as L
def main(rank, net, data):
    trainer = L.Trainer(accelerator="tpu", devices=1)
    trainer.fit(net, data)
if __name__ == "__main__":
    xmp.spawn(main, args=(NET, DATA))
""",
}

#: What the master does while the others wait.
MASTERS = {
    "an evaluation of another file": """\
import torch_xla.runtime as xr
from metrics import evaluate_epoch
def fit(model, loader, test_loader):
    device = xm.xla_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        F.cross_entropy(model(x), y).backward()
        xm.optimizer_step(optim)
    if xr.global_ordinal() == 0:  # !XLA418
        print(evaluate_epoch(model, test_loader, device))
    xm.rendezvous("end")
""",
    "on all cores": """\
import torch_xla.runtime as xr
from metrics import evaluate_epoch
def fit(model, test_loader):
    model = model.to(xm.xla_device())
    result = evaluate_epoch(model, test_loader)
    if xr.global_ordinal() == 0:
        print(result)
""",
}

#: A module of the program's own around torch_xla, which nobody has read.
WRAPPED = {
    "the device and the end of a step": """\
import torch
import torch.nn.functional as F
import tpu_utils
from torch.utils.data import DataLoader
def fit(model, data):
    device = tpu_utils.get_xla_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(data, batch_size=8, shuffle=True, drop_last=True, num_workers=4):
        optim.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))  # !XLA603
        loss.backward()
        optim.step()
        tpu_utils.mark_step()
        print(float(loss.item()))  # !XLA101
""",
    "a module of another kind": """\
import torch
import torch.nn.functional as F
import train_utils
from torch.utils.data import DataLoader
def fit(model, data):
    device = train_utils.get_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optim.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optim.step()
        train_utils.mark_step()
        print(float(loss.item()))
""",
}

#: A model that another function moves when the optimizer has its parameters already.
HANDED = {
    "the training moves it": """\
device = xm.xla_device()
def main(net, data):
    optimizer = torch.optim.Adam(net.parameters())  # !XLA305
    fit(net, optimizer, data)
def fit(model, optimizer, data):
    model.train()
    model = model.to(device)
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        xm.optimizer_step(optimizer)
main(nn.Linear(4, 4), [])
""",
    "what the training begins with moves it": """\
device = xm.xla_device()
def main(net, data):
    optimizer = torch.optim.Adam(net.parameters())  # !XLA305
    fit(net, data=data, optimizer=optimizer)
def ready(net):
    net.to(device)
    net.train()
def fit(model, optimizer, data):
    ready(model)
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        xm.optimizer_step(optimizer)
main(nn.Linear(4, 4), [])
""",
    "moved before": """\
device = xm.xla_device()
def main(net, data):
    net = net.to(device)
    optimizer = torch.optim.Adam(net.parameters())
    fit(net, optimizer, data)
def fit(model, optimizer, data):
    model = model.to(device)
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        xm.optimizer_step(optimizer)
main(nn.Linear(4, 4), [])
""",
    "the training moves another": """\
device = xm.xla_device()
def main(net, data):
    optimizer = torch.optim.Adam(net.parameters())
    fit(net, optimizer, data)
def fit(model, optimizer, data):
    model = nn.Sequential(nn.Linear(4, 4))
    model = model.to(device)
    optimizer.zero_grad()
main(nn.Linear(4, 4), [])
""",
    "the training makes its own": """\
device = xm.xla_device()
def main(net, data):
    optimizer = torch.optim.Adam(net.parameters())
    fit(net, optimizer, data)
def fit(model, optimizer, data):
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.zero_grad()
main(nn.Linear(4, 4), [])
""",
}

#: What is drawn as a Python number becomes part of the graph; what a bound is read from waits.
DRAWN = {
    "a part of the batch at a drawn place": """\
import random
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    for images, lengths in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        left = np.random.randint(0, 32)
        part = images[:, :, left : left + 224]  # !XLA208
        kind = random.choice(["text", "box", "both"])
        loss = model(part).mean()
        if kind != "box":  # !XLA207
            loss = loss + model(images).mean()
        if bool(random.getrandbits(1)):  # !XLA207
            loss = model.first(images) @ part
        loss.backward()
        xm.optimizer_step(optim)
""",
    "arrays of the host are cut there": """\
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        left = np.random.randint(0, 32)
        wave = batch[0][left : left + 8000]
        model(torch.from_numpy(wave).to(device)).mean().backward()
        xm.optimizer_step(optim)
""",
    "one cut for the whole run": """\
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    left = np.random.randint(0, 32)
    for images, _ in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        model(images[:, :, left : left + 224]).mean().backward()
        xm.optimizer_step(optim)
""",
    "lengths of the batch as bounds": """\
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    for batch in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        texts, lengths = batch
        loss = 0
        for score, text, length in zip(model(texts), texts, lengths):
            score = score[:length, :]  # !XLA108
            text = text[:20]
            loss += F.cross_entropy(score[:20], text)
            loss += score[1 : length - 1].mean()  # !XLA108
            loss += score[: len(texts) - 1].mean() + score[: lengths.shape[0]].mean()
        loss.backward()
        xm.optimizer_step(optim)
""",
}

#: A mask that is the same in each step.
FILLED = {
    "computed of constants in the step": """\
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    for images, _ in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        grid = torch.linspace(-1, 1, 32)
        mask = torch.exp(-grid.pow(2)).to(images.device)  # !XLA604
        (model(images) * mask).mean().backward()
        xm.optimizer_step(optim)
""",
    "computed once": """\
def fit(model, loader, optim):
    device = xm.xla_device()
    model = model.to(device)
    grid = torch.linspace(-1, 1, 32)
    mask = torch.exp(-grid.pow(2)).to(device)
    for images, _ in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        (model(images) * mask).mean().backward()
        xm.optimizer_step(optim)
""",
}

#: What looks like a fault and is none.
QUIET = {
    "batches of one by the class of the settings": (
        "XLA203",
        """\
import dataclasses
@dataclasses.dataclass
class Settings:
    batch_size: int = 1
    epochs: int = 3
settings = Settings(epochs=5)
def fit(model, data):
    device = xm.xla_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    loader = DataLoader(data, batch_size=settings.batch_size, shuffle=True)
    for x, y in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        F.cross_entropy(model(x), y).backward()
        xm.optimizer_step(optim)
""",
    ),
    "a pipeline gives pictures of the host": (
        "XLA112",
        """\
from diffusers import StableDiffusionPipeline
def main(index, prompts):
    pipe = StableDiffusionPipeline.from_pretrained("some/model")
    pipe = pipe.to(xm.xla_device())
    for i in range(3):
        start = time.time()
        picture = pipe(prompts[i]).images[0]
        print(time.time() - start)
if __name__ == "__main__":
    xmp.spawn(main, args=(["a"],))
""",
    ),
    "one core steps alone": (
        "XLA303",
        """\
def fit(model, loader):
    device = xm.xla_device()
    model = model.to(device)
    optim = torch.optim.Adam(model.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        xm.optimizer_step(optim)
def main():
    fit(nn.Linear(4, 4), [])
if __name__ == "__main__":
    main()
""",
    ),
    "the others print into nothing": (
        "XLA401",
        """\
import os
import sys
def main(index, prompts):
    if index > 0:
        sys.stdout = open(os.devnull, "w")
    print("batch", len(prompts))
if __name__ == "__main__":
    xmp.spawn(main, args=(["a"],))
""",
    ),
}


def check(program, *also):
    """All that is marked is found, and nothing else of the rules that are asked for."""
    program = HEAD + program
    asked = {code for _, code in marks(program)} | set(also)
    assert {item for item in found(program) if item[1] in asked} == marks(program)


@pytest.mark.parametrize("name", MOVES)
def test_a_helper_that_moves_is_told_where_it_is_called(name):
    check(MOVES[name], "XLA603", "XLA604")


@pytest.mark.parametrize("name", PADS)
def test_padding_is_found_behind_the_collate_function(name):
    check(PADS[name], "XLA209")


@pytest.mark.parametrize("name", STARTS)
def test_what_every_core_has(name):
    check(CORES + STARTS[name], "XLA406", "XLA408", "XLA426")


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_known_where_they_stand(name):
    check(STEPS[name], "XLA101", "XLA113", "XLA301", "XLA303")


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_that_cannot_start(name):
    check(TRAINERS[name], "XLA407", "XLA901")


@pytest.mark.parametrize("name", MASTERS)
def test_what_the_others_wait_for(name):
    check(MASTERS[name], "XLA418")


@pytest.mark.parametrize("name", WRAPPED)
def test_a_module_around_torch_xla_is_known_by_its_names(name):
    asked = {"XLA101", "XLA603"}
    assert {one for one in found(WRAPPED[name]) if one[1] in asked} == marks(WRAPPED[name])


@pytest.mark.parametrize("name", HANDED)
def test_an_optimizer_is_made_before_another_function_moves_the_model(name):
    check(HANDED[name], "XLA305")


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_or_read_shapes_the_graph(name):
    check(DRAWN[name], "XLA108", "XLA207", "XLA208")


@pytest.mark.parametrize("name", FILLED)
def test_constants_are_computed_once(name):
    check(FILLED[name], "XLA604")


@pytest.mark.parametrize("name", QUIET)
def test_what_looks_alike_is_not_told(name):
    code, program = QUIET[name]
    assert code not in {other for _, other in found(HEAD + program)}


GIVERS = """\
def modules():
    try:
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.runtime as runtime
    except ImportError:
        return None, None, None
    return xm, pl, runtime


def first():
    import torch_xla.core.xla_model

    return torch_xla.core.xla_model


def one_of_two(old):
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as runtime

    return xm if old else runtime


def each(old):
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as runtime

    if old:
        return xm
    return runtime


def made():
    import torch_xla

    return Settings(torch_xla)
"""
TAKERS = """\
import torch_xla
from torch.utils.data import DataLoader
{imports}

def feed(rows, device):
    {taken}
    {used}
"""


@pytest.mark.parametrize(
    ("taken", "used", "told"),
    [
        ("model, loaders, _ = modules()", "model.xrt_world_size()", True),
        ("model = first()", "model.xrt_world_size()", True),
        ("held, model = 1, first()", "model.xrt_world_size()", True),
        ("_, *model = modules()", "model.xrt_world_size()", False),
        ("model = made()", "model.xrt_world_size()", False),
        ("model = each(rows)", "model.xrt_world_size()", False),
        ("model = one_of_two(rows)", "model.xrt_world_size()", False),
        ("loaders, model, _ = modules()", "model.MpDeviceLoader(rows, device)", False),
    ],
)
def test_modules_that_a_function_gives_back(taken, used, tmp_path, *, told):
    text = TAKERS.replace("{taken}", taken).replace("{used}", used)
    here = found(f"{GIVERS}\n\n{text.replace('{imports}', '')}")
    assert ("XLA801" in {code for _, code in here}) is told
    names = "each, first, made, modules, one_of_two"
    files = {"own.py": GIVERS, "feed.py": text.replace("{imports}", f"from own import {names}")}
    there = {code for _, code in found_in_files(tmp_path, files)["feed.py"]}
    assert ("XLA801" in there) is told
