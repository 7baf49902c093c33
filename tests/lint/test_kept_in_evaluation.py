"""Evaluation loops that read something of each batch, and keep something else on the device.

All programs are invented. The line marked ``# !XLA301`` keeps what no read runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from rule_helpers import rows

_HEAD = """\
import torch
import torch_xla
from torch.utils.data import DataLoader
device = torch_xla.device()
def evaluate(net, data, criterion):
    net.to(device)
    net.eval()
    loader = DataLoader(data, batch_size=8)
    total, right, seen, outs = 0.0, 0, 0, []
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
"""

FAULTS = {
    "the loss is read, the hits are kept": """\
            out = net(x)
            total += criterion(out, y).item()
            right += (out.argmax(1) == y).sum()  # !XLA301
            seen += len(y)
""",
    "the predictions are fetched, the loss is kept": """\
            out = net(x)
            loss = criterion(out, y)
            outs.extend(out.argmax(1).cpu().tolist())
            total += loss  # !XLA301
""",
    "outputs in a list": """\
            out = net(x)
            total += float(criterion(out, y))
            outs.append(out)  # !XLA301
""",
    "fetched behind": """\
            out = net(x)
            total += criterion(out, y)  # !XLA301
            outs.append(out.cpu())
""",
    "of several outputs": """\
            out, state = net(x)
            total += state.mean()  # !XLA301
            print(out.mean().item())
""",
}

FINE = {
    "numbers": """\
            out = net(x)
            total += criterion(out, y).item()
            right += (out.argmax(1) == y).sum().item()
            seen += y.size(0)
""",
    "of what was fetched": """\
            out = net(x).cpu()
            right += (out.argmax(1) == y.cpu()).sum()
            outs.append(out)
""",
    "of what has its value": """\
            out = net(x)
            outs.append(out.cpu())
            total += criterion(out, y)
""",
    "the sum itself": """\
            total += criterion(net(x), y)
            print(total.cpu())
""",
    "an end": """\
            out = net(x)
            total += criterion(out, y)
            print(out.mean().item())
            torch_xla.sync()
""",
    "labels alone": """\
            print(net(x).mean().item())
            outs.append(y)
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_read_runs_is_told(name):
    program = _HEAD + FAULTS[name]
    marked = [n for n, line in enumerate(program.splitlines(), 1) if "# !XLA301" in line]
    assert rows(program, "XLA301") == marked


@pytest.mark.parametrize("name", FINE)
def test_what_is_read_or_ended_is_not(name):
    assert rows(_HEAD + FINE[name], "XLA301") == []


#: How the pending graph of a sum of losses grows, for each way of reading in the loop.
_MEASURED = """
import json
import torch
import torch_xla
device = torch_xla.device()
net = torch.nn.Linear(8, 3).to(device)
torch_xla.sync()
def pending(total):
    return torch_xla._XLAC._get_xla_tensors_text([total]).count("\\n")
grown = {}
for how in ("item", "float", "behind", "cpu", "tolist", "total"):
    total, sizes = torch.zeros((), device=device), []
    torch_xla.sync()
    with torch.no_grad():
        for _ in range(3):
            out = net(torch.ones(4, 8).to(device))
            if how in ("item", "float"):
                out.mean().item() if how == "item" else float(out.mean())
            if how in ("cpu", "tolist"):
                getattr(out, how)()
            total += out.mean()
            if how == "behind":
                out.cpu()
            if how == "total":
                total.cpu()
            sizes.append(pending(total))
    grown[how] = sizes[2] - sizes[1]
print(json.dumps(grown))
"""


@pytest.mark.slow
@pytest.mark.xla
def test_torch_xla_runs_only_what_a_read_needs():
    env = {**os.environ, "PJRT_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED], env=env, capture_output=True, text=True, check=True
    )
    grown = json.loads(done.stdout.splitlines()[-1])
    assert grown["item"] == grown["float"] == grown["behind"] > grown["cpu"] == grown["tolist"] > 0
    assert grown["total"] == 0


NESTED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def evaluate(model, loader):
    device = torch_xla.device()
    model = model.to(device)
    model.eval()
    hits = []
    for x, y in pl.MpDeviceLoader(loader, device):
        for run in range(3):
            for step in (1, 2):
                hits.append((model(x * step).argmax(1) == y).sum() + run)
    return hits
"""


def test_loops_within_an_evaluation_are_one_evaluation():
    """Gradients are turned off around the outermost one."""
    assert rows(NESTED, "XLA320") == [12]
