"""Parameters, buffers, layers and objects of several classes: what their methods do in a step."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

PARTS = """
import torch
import torch.nn as nn
import torch_xla


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.register_buffer("none", None)
        self.head = nn.Linear(4, 4)
        self.fixed = torch.arange(4)
        print(self.scale.sum().item(), self.head.weight.sum().item())

    def forward(self, x):
        place = int(self.at)  # !XLA102
        if torch.linalg.matrix_norm(self.scale[None]) > 10:  # !XLA104
            x = x / 2
        size = self.head.weight.norm().item()  # !XLA101
        fixed = x * self.fixed.to(x.device)  # !XLA604
        made = torch.zeros(4, device=self.scale.device)
        return x + made + self.scale * size


def train(loader):
    device = torch_xla.device()
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        x = x.to(device)  # !XLA603
        optimizer.zero_grad()
        net(x).sum().backward()
        for module in net.modules():
            if isinstance(module, nn.Linear):
                print(module.weight.abs().max().item())  # !XLA101
        optimizer.step()
        torch_xla.sync()
"""


def test_parameters_and_buffers_are_where_their_module_is():
    assert set(found(PARTS)) == marks(PARTS)


CALLBACKS = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Callback:
    def on_step(self, trainer):
        pass


class Losses(Callback):
    def __init__(self, every):
        self.every = every
        self.kept = []

    def on_step(self, trainer):
        self.kept.append(trainer.loss.item())  # !XLA101


class Guard(Callback):
    def on_step(self, trainer):
        if torch.isnan(trainer.loss):  # !XLA104
            raise RuntimeError("not a number")


class Quiet(Callback):
    def on_step(self, trainer):
        trainer.steps += 1


class Unused(Callback):
    def on_end(self, trainer):
        print(trainer.loss.item())


class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.Linear(size, size)

    def forward(self, x):
        return self.layer(x) * x.max().item()  # !XLA101


class Trainer:
    def __init__(self, optimizer, loader, callbacks):
        self.device = torch_xla.device()
        self.blocks = [Block(4).to(self.device), Block(8).to(self.device)]
        self.optimizer = optimizer
        self.loader = pl.MpDeviceLoader(loader, self.device)
        self.callbacks = callbacks
        self.steps = 0

    def fit(self):
        for x in self.loader:
            self.optimizer.zero_grad()
            for block in self.blocks:
                x = block(x)
            self.loss = x.mean()
            self.loss.backward()
            self.optimizer.step()
            for callback in self.callbacks:
                callback.on_step(self)
        for callback in self.callbacks:
            callback.on_end(self)


def main(optimizer, loader):
    Trainer(optimizer, loader, [Losses(1), Guard(), Quiet(), Unused()]).fit()
"""


def test_each_class_that_an_object_may_be_of_is_followed():
    told = {(row, code) for row, code in found(CALLBACKS) if code in {"XLA101", "XLA104"}}
    assert told == marks(CALLBACKS)


TOSSED = """
import random
import torch
import torch_xla


def train(model, optimizer, pairs, p):
    device = torch_xla.device()
    model.to(device)
    for step in range(100):
        source, target = random.choice(pairs)
        source = torch.tensor(source, device=device)  # !XLA603
        forced = True if random.random() < p else False
        shown = source.shape[random.randint(0, 1)] > 2
        out = model(source)
        if forced:  # !XLA207
            out = out * 2
        if shown:
            print(step)
        optimizer.zero_grad()
        out.sum().backward()
        optimizer.step()
        torch_xla.sync()
"""


CERTAIN = """
import random
import torch_xla


def decode(model, x, ratio=1.0):
    forced = random.random() < ratio
    out = model(x)
    if forced:
        out = out * 2
    return out


def train(model, optimizer, loader):
    device = torch_xla.device()
    model.to(device)
    for x in loader:
        x = x.to(device)
        optimizer.zero_grad()
        CALL.sum().backward()
        if not next(model.parameters()).is_meta:
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("call", "told"),
    [("decode(model, x)", []), ("decode(model, x, 0.0)", []), ("decode(model, x, 0.5)", [9])],
)
def test_a_toss_that_is_certain(call, told):
    program = CERTAIN.replace("CALL", call)
    assert [row for row, code in found(program) if code in {"XLA207", "XLA104"}] == told


def test_choices_that_were_tossed_before_and_samples_of_the_host():
    told = {(row, code) for row, code in found(TOSSED) if code in {"XLA207", "XLA603"}}
    assert told == marks(TOSSED)


GENERATED = """
import torch
import torch_xla
from tqdm import tqdm


def batches(loader, device):
    kept = torch.zeros(4).to(device)
    for batch in loader:
        yield [part.to(device) for part in batch]  # !XLA603


class Runner:
    def __init__(self, model):
        self.device = torch_xla.device()
        self.model = model.to(self.device)

    def put(self, *parts):
        return [part.to(self.device) for part in parts]  # !XLA603

    def step(self, optimizer, x, y):
        x, y = self.put(x, y)
        optimizer.zero_grad()
        (self.model(x) - y).sum().backward()
        optimizer.step()
        torch_xla.sync()

    def fit(self, optimizer, loaders):
        for x, y in loaders["train"]:
            self.step(optimizer, x, y)


def main(model, optimizer, loader):
    device = torch_xla.device()
    model = model.to(device)
    for x, y in tqdm(batches(loader, device)):
        optimizer.zero_grad()
        (model(x) - y).sum().backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_what_a_generator_or_a_helper_of_many_arguments_moves():
    assert {(row, code) for row, code in found(GENERATED) if code == "XLA603"} == marks(GENERATED)


ON_SOME = """
import torch_xla
import torch_xla.core.xla_model as xm


def validate(model, loader):
    right = sum(model(x).sum() for x in loader)
    return xm.mesh_reduce("right", right, sum)


def run(index, model, loader):
    if index == 0:
        best = validate(model, loader)  # !XLA405
    again = validate(model, loader)


torch_xla.launch(run, args=(None, None))
"""


def test_a_collective_of_some_cores_stands_at_the_call_under_the_condition():
    assert {(row, code) for row, code in found(ON_SOME) if code == "XLA405"} == marks(ON_SOME)


TEXTS = """
import torch_xla

LINE = "%d %.3f"


def train(model, optimizer, loader):
    device = torch_xla.device()
    model.to(device)
    for step, x in enumerate(loader):
        x = x.to(device)
        out = model(x)
        parts = [out.mean(), out.std()]
        out.sum().backward()
        optimizer.step()
        print(LINE % (step, out.mean()))  # !XLA103
        print("%d " * 2 % (step, step) + f"{parts}")  # !XLA103
        print(("%d" + " %.3f" * 2) % (step, *parts))  # !XLA103
        print(LINE % (step, len(parts)), 7 % step)
"""


def test_texts_under_a_name_and_lists_in_texts():
    assert {(row, code) for row, code in found(TEXTS) if code == "XLA103"} == marks(TEXTS)


CHOSEN = """
import torch_xla


def plain(model, batch):
    loss = model(batch).sum()
    return loss, {"loss": loss.item()}  # !XLA101


def shown(model, batch):
    loss = model(batch).mean()
    print(loss)  # !XLA103
    return loss, {}


def unused(model, batch):
    return model(batch).item()


STEPS = {"plain": plain, "shown": shown}


def train(kind, model, optimizer, loader):
    device = torch_xla.device()
    model.to(device)
    step = STEPS[kind]
    for batch in loader:
        batch = batch.to(device)
        optimizer.zero_grad()
        loss, info = step(model, batch)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
"""


def test_functions_of_a_dictionary():
    told = {(row, code) for row, code in found(CHOSEN) if code in {"XLA101", "XLA103"}}
    assert told == marks(CHOSEN)
