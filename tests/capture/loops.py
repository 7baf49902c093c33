"""Run by a test: loops of many kinds, each in a forked child, so that torch_xla is imported once.

Prints ``NAME PID`` for each. Every loop takes TURNS iterations; nothing in it names xladoctor,
except where that is the point.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader

TURNS = 6


def _data():
    return DataLoader(torch.ones(TURNS * 2, 4), batch_size=2)


def _model(device):
    return torch.nn.Linear(4, 1).to(device)


def _learn(model, optimizer, x):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()


def _train(end, *, loader=None, by=None):
    device = torch_xla.device()
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader(device) if loader else _data():
        (by or _learn)(model, optimizer, x.to(device))
        end()


def _on_device(device):
    return pl.MpDeviceLoader(_data(), device)


def _by_optimizer_step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    xm.optimizer_step(optimizer, barrier=True)


def _nothing():
    pass


def train_sync():
    _train(torch_xla.sync)


def train_mark_step():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _train(xm.mark_step)


def train_optimizer_step():
    _train(_nothing, by=_by_optimizer_step)


def train_device_loader():
    _train(_nothing, loader=_on_device)


def train_parallel_loader():
    def loader(device):
        return pl.ParallelLoader(_data(), [device]).per_device_loader(device)

    _train(_nothing, loader=loader)


def train_step_context():
    def learn(model, optimizer, x):
        with torch_xla.step():
            _learn(model, optimizer, x)

    _train(_nothing, by=learn)


def train_compile():
    device = torch_xla.device()
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch_xla.compile(lambda x: _learn(model, optimizer, x))
    for x in _data():
        step(x.to(device))


def train_dynamo():
    device = torch_xla.device()
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forward = torch.compile(lambda x: model(x).pow(2).mean(), backend="openxla")
    for x in _data():
        optimizer.zero_grad()
        forward(x.to(device)).backward()
        optimizer.step()
        torch_xla.sync()


def train_eager():
    torch_xla.experimental.eager_mode(True)
    _train(_nothing)


def train_two_optimizers():
    device = torch_xla.device()
    models = [_model(device), _model(device)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for x in _data():
        for model, optimizer in zip(models, optimizers, strict=True):
            _learn(model, optimizer, x.to(device))
        torch_xla.sync()


def by_hand_without_optimizer():
    device = torch_xla.device()
    model = _model(device)
    for x in _data():
        model(x.to(device)).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        torch_xla.sync()


def evaluate_device_loader():
    device = torch_xla.device()
    model = _model(device)
    total = torch.zeros(1, device=device)
    with torch.no_grad():
        for x in _on_device(device):
            total += model(x).sum()


def evaluate_sync():
    device = torch_xla.device()
    model = _model(device)
    total = torch.zeros(1, device=device)
    with torch.no_grad():
        for x in _data():
            total += model(x.to(device)).sum()
            torch_xla.sync()
    total.item()


def evaluate_dynamo():
    device = torch_xla.device()
    model = _model(device)
    forward = torch.compile(model, backend="openxla")
    with torch.no_grad():
        for x in _data():
            forward(x.to(device)).cpu()


def evaluate_reads():
    device = torch_xla.device()
    model = _model(device)
    with torch.no_grad():
        for x in _data():
            model(x.to(device)).cpu()


def evaluate_then_train():
    evaluate_reads()
    train_sync()


def train_and_evaluate():
    """Three epochs; after each an evaluation that keeps its sum and one that reads each batch."""
    device = torch_xla.device()
    model = _model(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for x in _on_device(device):
            _learn(model, optimizer, x)
        _evaluate_lazily(model, device)
        _evaluate_reading(model, device)


def _evaluate_lazily(model, device):
    total = torch.zeros(1, device=device)
    with torch.no_grad():
        for x in _on_device(device):
            total += model(x).sum()
    return total


def _evaluate_reading(model, device):
    with torch.no_grad():
        return sum(model(x).abs().sum().item() for x in _on_device(device))


def odd_loop():
    import xladoctor

    device = torch_xla.device()
    optimizer = torch.optim.SGD([torch.ones(4, device=device).requires_grad_()], lr=0.1)
    for _ in range(TURNS):
        for _ in range(3):
            optimizer.step()
        torch_xla.sync()
        xladoctor.step()


LOOPS = [
    value for name, value in list(globals().items())
    if name.startswith(("train_", "evaluate_", "by_hand", "odd")) and callable(value)
]  # fmt: skip

if __name__ == "__main__":
    for loop in LOOPS:
        if len(sys.argv) > 1 and loop.__name__ not in sys.argv[1:]:
            continue
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            loop()
            sys.stdout.flush()
            # As children of multiprocessing end: without atexit.
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(loop.__name__, pid, status)
