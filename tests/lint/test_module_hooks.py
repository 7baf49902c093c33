"""Hooks that programs register on modules: they run with every step, or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

START = """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer):
    for x, y in pl.MpDeviceLoader(loader, torch_xla.device()):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
PROGRAMS = {
    "a function of the program": """
seen = {}


def keep(module, inputs, output):
    seen["mean"] = output.mean().item()  # !XLA101
    if inputs[0].abs().max() > 100:  # !XLA104
        seen["large"] = True


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    model.layer.register_forward_hook(keep)
    train(model, loader, optimizer)
""",
    "a function that another makes": """
def recorder(name, kept):
    def record(module, inputs, output):
        kept[name] = output.norm().item()  # !XLA101
    return record


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    kept, handles = {}, []
    for name, part in model.named_modules():
        handles.append(part.register_forward_hook(recorder(name, kept)))
    train(model, loader, optimizer)
    for handle in handles:
        handle.remove()
""",
    "a method of an object that registers it": """
class Steering:
    def __init__(self, model, vector):
        self.model, self.vector = model, vector
        self.handle = None

    def change(self, module, inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        norm = hidden.norm(dim=-1).mean()
        if norm > 1e-6:  # !XLA104
            hidden = hidden + self.vector * norm
        return hidden

    def register(self):
        self.handle = self.model.layers[4].register_forward_hook(self.change)
        return self

    def remove(self):
        self.handle.remove()


def main(model, loader, optimizer, vector):
    model.to(torch_xla.device())
    steering = Steering(model, vector)
    steering.register()
    train(model, loader, optimizer)
    steering.remove()
""",
    "a hook of the backward pass, and a lambda": """
norms, inputs = [], []


def look(module, grad_input, grad_output):
    norms.append(grad_output[0].norm().item())  # !XLA101


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    model.head.register_full_backward_hook(look)
    model.head.register_forward_pre_hook(
        lambda module, given: inputs.append(given[0].sum().item())  # !XLA101
    )
    train(model, loader, optimizer)
""",
    "a summary that is over before": """
sizes = []


def size(module, inputs, output):
    sizes.append(output.abs().max().item())


def summary(model, x):
    handles = [part.register_forward_hook(size) for part in model.modules()]
    model(x)
    for handle in handles:
        handle.remove()


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    summary(model, torch.zeros(1, 3, 8, 8, device=torch_xla.device()))
    train(model, loader, optimizer)
""",
    "looked at when the model is trained": """
kept = []


def keep(module, inputs, output):
    kept.append(output.cpu())


def show(model, x):
    model.layer.register_forward_hook(keep)
    return model(x)


def main(model, loader, optimizer, x):
    model.to(torch_xla.device())
    train(model, loader, optimizer)
    show(model, x)
""",
    "nothing is read": """
kept = {}


def keep(module, inputs, output):
    kept["features"] = output.detach()
    if isinstance(output, tuple) or not module.training or output.dim() < 2:
        return None
    return output * 2


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    model.layer.register_forward_hook(keep)
    train(model, loader, optimizer)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_of_modules(name):
    program = START + PROGRAMS[name]
    assert {one for one in found(program) if one[1] in {"XLA101", "XLA102", "XLA104"}} == marks(
        program
    )
