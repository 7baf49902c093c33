"""Run by a test: two recorded stretches of one process, and one that fails.

``python inside.py OUT`` writes a JSON object of what the runs say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch_xla

import xladoctor
from xladoctor.errors import UsageError


def train(steps, rows=4):
    x = torch.ones(rows, 4).to(device)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        torch_xla.sync()


device = torch_xla.device()
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
found = {}

with xladoctor.profile("first") as first:
    train(4)
    model.weight.sum().item()  # line READ
    try:
        with xladoctor.profile():
            found["nested"] = "allowed"
    except UsageError as error:
        found["nested"] = str(error)

train(3)  # recorded by nobody

with xladoctor.profile("second") as second:
    train(2, rows=6)

try:
    with xladoctor.profile("third") as third:
        train(1)
        int("on purpose")
except ValueError as error:
    found["passed"] = type(error).__name__

for name, run in (("first", first), ("second", second), ("third", third)):
    report = run.result()
    found[name] = {
        "steps": report.summary.steps,
        "compilations": report.summary.compilations,
        "syncs": report.summary.host_syncs,
        "codes": [one.code for one in report.findings],
        "complete": json.loads((run.directory / "manifest.json").read_text())["complete"],
    }
Path(sys.argv[1]).write_text(json.dumps(found))
first.report()
