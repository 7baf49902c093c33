"""XLA110: optimizers of other packages that were measured to read on the host in each step."""

import pytest

from tests.lint.rule_helpers import found, rows

STEP = """import {package}
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, criterion):
    device = torch_xla.device()
    model.to(device)
    optimizer = {made}
    for images, labels in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        xm.optimizer_step(optimizer)
"""


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("torch_optimizer", "torch_optimizer.Lamb(model.parameters(), lr=0.01)"),
        ("torch_optimizer as optim", "optim.AdamP(model.parameters())"),
        ("pytorch_optimizer", "pytorch_optimizer.SWATS(model.parameters())"),
        ("pytorch_optimizer", "pytorch_optimizer.Lamb(model.parameters())"),
        ("timm.optim", "timm.optim.NvNovoGrad(model.parameters())"),
        ("timm.optim.adafactor", "timm.optim.adafactor.Adafactor(model.parameters())"),
        ("transformers", "transformers.Adafactor(model.parameters(), lr=None)"),
        ("prodigyopt", "prodigyopt.Prodigy(model.parameters())"),
        ("dadaptation", "dadaptation.DAdaptAdam(model.parameters())"),
    ],
)
def test_optimizers_that_read(package, made):
    assert rows(STEP.format(package=package, made=made), "XLA110") == [10]


@pytest.mark.parametrize(
    ("package", "made"),
    [
        ("torch_optimizer", "torch_optimizer.DiffGrad(model.parameters())"),
        ("pytorch_optimizer", "pytorch_optimizer.Lion(model.parameters())"),
        ("timm.optim", "timm.optim.Lamb(model.parameters())"),
        (
            "transformers",
            "transformers.Adafactor(model.parameters(), lr=1e-3, scale_parameter=False)",
        ),
        ("schedulefree", "schedulefree.AdamWScheduleFree(model.parameters())"),
    ],
)
def test_optimizers_that_do_not(package, made):
    assert found(STEP.format(package=package, made=made)) == []


def test_a_class_of_the_programs_own_is_its_own():
    own = "class Lamb:\n    def __init__(self, parameters):\n        pass\n\n"
    program = own + STEP.format(package="torch", made="Lamb(model.parameters())")
    assert rows(program, "XLA110") == []


ACCELERATED = """import torch
from accelerate import Accelerator, DistributedType
from transformers import Adafactor


def train(model, loader):
    accelerator = Accelerator()
    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False{more})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if accelerator.distributed_type == DistributedType.{kind}:
        model.tie_weights()
    for images, labels in loader:
        accelerator.backward(model(images, labels).loss)
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("more", "kind", "told"),
    [
        ("", "XLA", [8]),
        (", scale_parameter=True", "TPU", [8]),
        (", scale_parameter=False", "XLA", []),
        ("", "FSDP", []),
    ],
)
def test_a_program_for_several_devices_of_which_one_is_xla(more, kind, told):
    assert rows(ACCELERATED.format(more=more, kind=kind), "XLA110") == told


OWN = """import torch
import torch_xla


class Scaled(torch.optim.Optimizer):
    def __init__(self, weights, lr):
        super().__init__(weights, {"lr": lr, "careful": True})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if not group["params"]:
                continue
            print(group["lr"])
            for p in group["params"]:
                if p.grad is None or len(p.shape) < 1 or p.is_bias:
                    continue
                kept = self.state[p]
                if len(kept) == 0:
                    kept["turn"], kept["mean"] = 0, torch.zeros_like(p)
                kept["turn"] += 1
                if kept["turn"] > 3 and group["careful"]:
                    kept["mean"].mul_(0.9).add_(p.grad)
                size = p.norm()
                if size > 0:  # XLA104
                    p.add_(kept["mean"], alpha=-group["lr"] * size.item())  # XLA101


def main(net, batches):
    device = torch_xla.device()
    net.to(device)
    scaled = Scaled(net.parameters(), 0.1)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in batches:
        net(x).mean().backward()
        for group in plain.param_groups:
            group["lr"] *= 0.9
            rates = [one["lr"] for one in plain.param_groups]
            print(f"{group['lr']}", max(rates), plain.param_groups[0]["lr"])
            for name, value in group.items():
                if name != "params":
                    print(name, value)
            for p in group["params"]:
                print(p.shape, p.numel())
                print(p.grad.norm().item())  # XLA101
        scaled.step()
        plain.step()
        torch_xla.sync()
"""


def test_the_weights_that_an_optimizer_has():
    lines = OWN.split("\n")
    meant = {(row, line.rpartition(" ")[2]) for row, line in enumerate(lines, 1) if "# XLA" in line}
    assert {one for one in found(OWN) if one[1].startswith("XLA1")} == meant
