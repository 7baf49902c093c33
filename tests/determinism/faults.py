"""Programs of four cores with one fault each, of the kinds that depend on which core is first."""

_HEAD = """\
import sys
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def model_and_optimizer(device):
    random = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=random)
    model = model.to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def learn(model, optimizer, x):
    optimizer.zero_grad()
    out = model(x)
    loss = out.pow(2).mean()
    loss.backward()
    return out, loss


"""
_TAIL = """

if __name__ == "__main__":
    torch_xla.launch(train)
"""

#: Name of the fault to the program's main function.
_MAINS = {
    # One core keeps a few operations on its outputs before the step's collective.
    "kept-outputs": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    kept = None
    for step in range(8):
        out, loss = learn(model, optimizer, torch.ones(16, 8).to(device))
        if xr.global_ordinal() == 0:
            kept = torch.softmax(out.detach(), -1).max() * 2  # line FAULT
        xm.optimizer_step(optimizer)
        torch_xla.sync()
""",
    # The core's number is a constant of its graph.
    "ordinal-constant": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    for step in range(8):
        x = torch.ones(16, 8).to(device) + xr.global_ordinal()  # line FAULT
        learn(model, optimizer, x)
        xm.optimizer_step(optimizer)
        torch_xla.sync()
""",
    # One core comes to a collective that the others do not come to.
    "extra-collective": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    for step in range(8):
        out, loss = learn(model, optimizer, torch.ones(16, 8).to(device))
        if step == 4 and index == 2:
            loss = xm.all_reduce("sum", loss)  # line FAULT
        xm.optimizer_step(optimizer)
        torch_xla.sync()
""",
    # One core gets fewer batches and leaves the loop.
    "uneven-batches": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    rows = [torch.ones(8)] * (24 if index == 3 else 32)
    loader = torch.utils.data.DataLoader(rows, batch_size=4)  # line FAULT
    for x in loader:
        learn(model, optimizer, x.to(device))
        xm.optimizer_step(optimizer)
        torch_xla.sync()
""",
    # One core does not reduce its gradients in one step.
    "lost-reduction": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    for step in range(8):
        learn(model, optimizer, torch.full((16, 8), 1.0 + index).to(device))
        optimizer.step()  # line FAULT
        torch_xla.sync()
""",
    # One core raises.
    "core-fails": """\
def train(index):
    device = torch_xla.device()
    model, optimizer = model_and_optimizer(device)
    for step in range(8):
        learn(model, optimizer, torch.ones(16, 8).to(device))
        if step == 5 and index == 1:
            raise ValueError("a bad label")  # line FAULT
        xm.optimizer_step(optimizer)
        torch_xla.sync()
""",
}

#: Name of the fault to the whole program.
FAULTS = {name: _HEAD + main + _TAIL for name, main in _MAINS.items()}


def line(name: str) -> int:
    """The row of the line that is to change."""
    rows = FAULTS[name].splitlines()
    return next(row for row, text in enumerate(rows, 1) if text.endswith("# line FAULT"))
