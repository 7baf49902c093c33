"""What is drawn, counted or made on the host in a step: callees, places, lists, counters."""

from __future__ import annotations

from rule_helpers import found, marks

CALLEES = """
import random
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class AnyLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.losses = [nn.L1Loss(), nn.MSELoss()]

    def forward(self, out, y):
        loss = np.random.choice(self.losses)  # !XLA207
        return loss(out, y)


def mirrored(x):
    return x.flip(-1)


def moved(x):
    return x.roll(1)


CHANGES = [mirrored, moved]


def train(model, loader, optimizer, names):
    device = torch_xla.device()
    model = model.to(device)
    criterion = AnyLoss()
    always = random.choice(CHANGES)
    for x, y in pl.MpDeviceLoader(loader, device):
        x = random.choice(CHANGES)(x)  # !XLA207
        for change in random.sample(CHANGES, 1):  # !XLA207
            x = change(x)
        x = always(x)
        for change in CHANGES:
            x = change(x)
        name = random.choice(names)
        print(name.upper())
        criterion(model(x), y).backward()
        optimizer.step()
"""


def test_a_drawn_callee():
    assert {mark for mark in found(CALLEES) if mark[1] == "XLA207"} == marks(CALLEES)


PLACES = """
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def mixed(x, y):
    order = torch.randperm(x.size(0))
    return x + x[order], y  # !XLA604


def mixed_there(x):
    order = torch.randperm(x.size(0), device=x.device)
    return x + x[order]


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.register_buffer("known", torch.zeros(1, 512, 3))
        self.places = torch.zeros(1, 512, 3)
        self.factor = torch.tensor(0.5)
        self.boxes = [(10, 13), (16, 30)]
        self.steps = [8, 16, 32]
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        steps = torch.tensor(self.steps).to(x)  # !XLA604
        scaled = x.new_tensor([(w / 8, h / 8) for w, h in self.boxes])  # !XLA604
        wide = x.shape[-1]
        grid = torch.linspace(-1 + 1 / wide, 1 - 1 / wide, wide).type_as(x)  # !XLA604
        x = x + self.places[:, :wide]  # !XLA604
        x = x + self.known[:, :wide] * self.factor
        there = torch.linspace(-1 + 1 / wide, 1 - 1 / wide, wide, device=x.device)
        sized = torch.tensor([x.size(0), x.size(1)], device=x.device)
        return self.last(x) + steps.sum() + scaled.sum() + grid + there + sized.sum()


def train(loader, optimizer, places):
    device = torch_xla.device()
    model = Net(4).to(device)
    before = torch.arange(8)
    for count, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        x, y = mixed(mixed_there(x), y)
        targets = torch.tensor(range(len(x)), device=device)  # !XLA604
        out = model(x)
        pairs = out[torch.arange(len(x)), y]  # !XLA604
        one = x[before]
        row = torch.tensor(list(range(count, count + 4)), device=device)
        for item in (0.5, 2.0):
            out = out + torch.tensor(item).to(out)
        both = [one if torch.is_tensor(one) else torch.tensor(one).to(out) for one in (y, places)]
        out = out + both[0].sum()
        (pairs.mean() + targets.sum() + one.sum() + row.sum() + out.sum()).backward()
        optimizer.step()
"""


def test_places_and_lists_of_the_host():
    assert {mark for mark in found(PLACES) if mark[1] == "XLA604"} == marks(PLACES)


DECODED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm


@torch.no_grad()
def decode(model, tokens, end):
    device = torch_xla.device()
    model = model.to(device)
    tokens = tokens.to(device)
    at = 5
    while at < end:
        logits = model(tokens[:, :at])  # !XLA205
        tokens[:, at] = logits[:, -1].argmax(-1)  # !XLA205
        at += 1
        xm.mark_step()
    return tokens


@torch.no_grad()
def scored(model, loader):
    device = torch_xla.device()
    model = model.to(device)
    total, at = 0, 0
    results = torch.zeros(1000, device=device)
    for x in loader:
        out = model(x.to(device))
        results[at : at + 8] = out.mean(1)  # !XLA205
        at += 8
        total += out.sum()
        xm.mark_step()
    return results, total


@torch.no_grad()
def talk(model, tokenizer):
    device = torch_xla.device()
    model = model.to(device)
    told = 0
    while True:
        ids = tokenizer(input(), return_tensors="pt")["input_ids"].to(device)
        answer = model(ids)[:, :told]
        told += 1
        print(answer)
"""


def test_numbers_that_a_loop_counts_up_itself():
    told = {mark for mark in found(DECODED) if mark[1] == "XLA205"}
    assert told == marks(DECODED)


DETECTOR = """
import torch
import torch_xla.core.xla_model as xm
from torchvision.models.detection import fasterrcnn_resnet50_fpn, retinanet_resnet50_fpn


def build(count):
    return fasterrcnn_resnet50_fpn(num_classes=count)


def train(loader, optimizer):
    device = xm.xla_device()
    model = build(3).to(device)
    for images, targets in loader:
        images = [image.to(device) for image in images]
        targets = [{k: v.to(device) for k, v in target.items()} for target in targets]
        losses = model(images, targets)  # !XLA503
        sum(losses.values()).backward()
        xm.optimizer_step(optimizer, barrier=True)


def on_the_host(loader):
    model = retinanet_resnet50_fpn().eval()
    for images in loader:
        print(len(model(images)))
"""


def test_a_detection_model_of_torchvision():
    assert {mark for mark in found(DETECTOR) if mark[1] == "XLA503"} == marks(DETECTOR)


CUTS = """
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def box(shape, share):
    wide, high = shape[2], shape[3]
    side = int(wide * np.sqrt(1.0 - share))
    middle = np.random.randint(wide)
    left = np.clip(middle - side // 2, 0, wide)
    right = np.clip(middle + side // 2, 0, wide)
    return left, right, high


def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        share = np.random.beta(1.0, 1.0)
        left, right, high = box(x.shape, share)
        x[:, :, left:right] = x.flip(0)[:, :, left:right]  # !XLA208
        first = torch.randint(0, 8, (1,)).item()
        part = x[:, first : first + 4]  # !XLA208
        begin = int(torch.rand(1) * 8)
        more = x[:, begin : begin + 4]  # !XLA208
        count = int(x.shape[1] * np.random.uniform(0.2, 0.6))
        some = x[:, :count]  # !XLA208
        rows = x[:, :, :high]
        half = x[:, : x.shape[1] // 2] * share
        (model(x) + part.sum() + more.sum() + some.sum() + rows.sum() + half.sum()).sum().backward()
        optimizer.step()
"""


def test_cuts_at_numbers_that_are_computed_of_drawn_ones():
    told = {mark for mark in found(CUTS) if mark[1] == "XLA208"}
    assert told == marks(CUTS)


LENGTHENED = """
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        length = min(512, 64 + step)
        part = x[:, :length]  # !XLA205
        again = x[:, : int(step * 2)]  # !XLA205
        turn = step % 4
        other = x[:, turn]
        (model(part) + again.sum() + other.sum()).sum().backward()
        xm.optimizer_step(optimizer)
"""


def test_a_length_that_grows_by_a_name():
    assert {mark for mark in found(LENGTHENED) if mark[1] == "XLA205"} == marks(LENGTHENED)


OF_ITSELF = """
import random
import torch.nn.functional as F
import torch_xla


class Degrading:
    def __init__(self, model, optimizer, size):
        self.device = torch_xla.device()
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.left, self.right, self.size = 0, size, size

    def shift(self):
        self.left = self.right - self.size
        self.right = self.left + self.size

    def grow(self):
        self.size = self.size + random.choice((-8, 0, 8))

    def fit(self, loader):
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            self.shift()
            self.grow()
            x = x[:, self.left : self.right]
            x = F.interpolate(x, size=self.size)  # !XLA208
            F.l1_loss(self.model(x), y).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            torch_xla.sync()
"""


def test_attributes_that_are_computed_of_themselves():
    """Two that are made of each other had no end for the one who looked for the dice."""
    told = {mark for mark in found(OF_ITSELF) if mark[1] == "XLA208"}
    assert told >= marks(OF_ITSELF)
