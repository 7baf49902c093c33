"""Real runs: the ways to run a step other than plain lazy tracing, and steps marked by hand."""

from __future__ import annotations

import collections
import json
import sys

import programs
import pytest
from test_profile_xla import Run, profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

HEAD = """\
import sys
import torch
import torch_xla
import torch_xla.runtime as xr
"""

BODY = """\
device = torch_xla.device()


def parts():
    model = torch.nn.Linear(6, 2).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 6).to(device)


def learn(model, optimizer, x):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""

WHOLE = (
    HEAD
    + BODY
    + """\
import xladoctor

model, optimizer, x = parts()
step = torch_xla.compile(lambda: learn(model, optimizer, x))
for _ in range(5):
    step()  # line COMPILE

model, optimizer, x = parts()
for _ in range(5):
    with torch_xla.step():  # line CONTEXT
        learn(model, optimizer, x)

model, optimizer, x = parts()
fast = torch.compile(model, backend="openxla")
xladoctor.step()
with torch.no_grad():
    for _ in range(5):
        y = fast(x)  # line DYNAMO
        xladoctor.step()
"""
)

EAGER = (
    HEAD
    + BODY
    + """\
torch_xla.experimental.eager_mode(True)
model, optimizer, x = parts()
for _ in range(7):
    learn(model, optimizer, x)
"""
)

EAGER_CORES = (
    HEAD
    + """\
import torch_xla.core.xla_model as xm


def train(index):
    torch_xla.experimental.eager_mode(True)
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.full((4, 6), 1.0 + index).to(device)
    for _ in range(5):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        xm.optimizer_step(optimizer)
    both = xm.all_gather(torch.tensor([float(index)]).to(device))
    if index == 0:
        print("gathered", both.cpu().tolist(), round(model.weight.sum().item(), 4))


if __name__ == "__main__":
    torch_xla.launch(train)
"""
)

SPMD = (
    HEAD
    + "xr.use_spmd()\n"
    + BODY
    + """\
import numpy as np
import torch_xla.distributed.spmd as xs

mesh = xs.Mesh(np.arange(2), (2, 1), ("data", "model"))
model, optimizer, x = parts()
xs.mark_sharding(x, mesh, ("data", None))
for _ in range(7):
    learn(model, optimizer, x)
    torch_xla.sync()  # line STEP
"""
)

#: Steps whose device is at work for a hundred times as long as Python: the program waits for it.
BUSY = (
    HEAD
    + """\
device = torch_xla.device()
weight = torch.ones(2000, 2000).to(device).requires_grad_()
optimizer = torch.optim.SGD([weight], lr=0.0)
for wait in (True, True, True, False, False, False):
    weight.matmul(weight).sum().backward()
    optimizer.step()
    torch_xla.sync(wait=wait)
"""
)


def _run(folder, text, *words, **environ) -> tuple[Run, dict]:
    (folder / "train.py").write_text(text)
    words = (*words, "-o", "run", "--output-format", "json", "--output-file", "r.json", "--")
    done = profile(folder, *words, sys.executable, "train.py", PJRT_DEVICE="CPU", **environ)
    assert done.returncode == 0, done.stderr
    return Run(done, folder / "run"), json.loads((folder / "r.json").read_text())


def test_compiled_steps_and_dynamo(tmp_path):
    run, report = _run(tmp_path, WHOLE)
    places = {(run.line(row["site"]), row["trigger"]) for row in run.of("compilation")}
    compiled, context, dynamo = (
        programs.line(WHOLE, mark) for mark in ("COMPILE", "CONTEXT", "DYNAMO")
    )
    # The second way runs the very graph that the first has compiled.
    assert {(compiled, "step"), (dynamo, "library")} <= places
    assert context not in {place for place, _ in places}
    # The program has called xladoctor.step() six times: its optimizer's steps count no longer.
    assert report["summary"]["steps"] == 6
    assert report["summary"]["compilations_after_warmup"] == 0
    launched = collections.Counter()
    for row in run.of("step"):
        for site, _, count, _ in row["launches"]:
            launched[run.line(site)] += count
    assert launched[compiled] == launched[context] == 5
    assert launched[dynamo] >= 5
    assert not [f for f in report["findings"] if f["severity"] == "error"]


def test_eager_mode_is_not_taken_for_a_loop_without_step_end(tmp_path):
    _, report = _run(tmp_path, EAGER)
    assert report["summary"]["steps"] == 7
    # That it is on, which the code shows, is not held against a step of a few operations.
    assert report["findings"] == []


@pytest.mark.slow
def test_eager_mode_on_several_cores(tmp_path):
    """Its collectives meet; what is compiled there nobody can see, and the report says so."""
    run, report = _run(tmp_path, EAGER_CORES, "--simulate-cores", "2")
    assert run.done.stdout.startswith("gathered [0.0, 1.0] ")
    summary = report["summary"]
    assert (summary["cores"], summary["steps"]) == (2, 5)
    assert (summary["compilations"], summary["compilations_after_warmup"]) == (None, None)
    assert [core["compilations"] for core in report["cores"]] == [None, None]
    assert "sound" not in summary["verdict"]
    assert sum("is not measured" in note and "eager" in note for note in report["notes"]) == 1
    assert [found["code"] for found in report["findings"]] == ["XLA714"]


def test_spmd(tmp_path):
    run, report = _run(tmp_path, SPMD, CPU_NUM_DEVICES="2")
    assert report["summary"]["steps"] == 7
    places = {run.line(row["site"]) for row in run.of("compilation")}
    assert programs.line(SPMD, "STEP") in places
    assert report["summary"]["compilations_after_warmup"] == 0
    assert not [f for f in report["findings"] if f["severity"] == "error"]


def test_waiting_for_the_device_is_told_from_tracing(tmp_path):
    run, report = _run(tmp_path, BUSY)
    parts = {row["last"]: row["parts"] for row in run.of("step") if row["last"]}
    assert list(parts) == [1, 2, 3, 4, 5, 6]
    # Which launch waits for which execution is XLA's to choose, with wait=True too.
    assert report["summary"]["seconds"]["execute"] > report["summary"]["seconds"]["trace"]
