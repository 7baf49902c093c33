"""Metrics reports that real programs print: an idle device, and parameters that are held twice."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from xladoctor.diagnosis import device_idle, diagnose, donation, thresholds
from xladoctor.diagnosis.pasted import states_of
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

    from xladoctor.diagnosis.pasted import State

pytestmark = pytest.mark.xla

#: Two reports of a program that updates 120 small parameters. "slow-host" makes new tensors of
#: them, and its host sleeps between steps; "in-place" lets torch's Adam update them.
PROGRAM = """import sys, time, torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics

device = torch_xla.device()
parameters = [torch.nn.Parameter(torch.ones(4, device=device)) for _ in range(120)]
squares = [torch.zeros(4, device=device) for _ in parameters]
optimizer = torch.optim.Adam(parameters)
torch_xla.sync()
for step in range(1, 61):
    loss = sum((p * p).sum() for p in parameters)
    if sys.argv[1] == "in-place":
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    else:
        gradients = torch.autograd.grad(loss, parameters)
        for k, (p, g) in enumerate(zip(parameters, gradients)):
            squares[k] = squares[k] * 0.9 + g * g
            p.data = torch.addcdiv(p.data, g, squares[k].sqrt(), value=-0.01)
    torch_xla.sync()
    if sys.argv[1] == "slow-host" and step > 30:
        xm.wait_device_ops()  # the device does nothing in what follows
        time.sleep(0.2)
    if step % 30 == 0:
        xm.wait_device_ops()
        print(f"[MetricsData; step={step}]")
        print(metrics.metrics_report())
"""


def printed(folder: Path, mode: str) -> str:
    (folder / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "train.py", mode],
        cwd=folder, check=True, capture_output=True, text=True,
        env={**os.environ, "PJRT_DEVICE": "CPU"},
    )  # fmt: skip
    return done.stdout


def state_of(text: str) -> State:
    (state,) = states_of(load(["-"], text).reports)
    return state


def test_a_slow_host_and_parameters_that_are_held_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(tmp_path, "slow-host")
    state = state_of(text)
    stretch = device_idle.stretch_of(state)
    assert stretch is not None
    assert stretch.executions == 30
    assert stretch.wall >= 30 * 0.2 * 0.99  # printed rates are rounded
    assert stretch.idle >= 29 * 0.2 - stretch.compiled
    assert donation.updated_parameters(state) == pytest.approx(120, rel=0.1)
    assert donation.donated_inputs(state) == 0
    # A test need not be slow for long, and a busy machine makes the host wait at times.
    monkeypatch.setattr(thresholds, "WORTH_SECONDS", 3.0)
    monkeypatch.setattr(thresholds, "IDLE_LOCK_SHARE", 1.0)
    found = {f.code: f for f in diagnose(load(["-"], text)).findings}
    assert found.keys() == {"XLA601", "XLA711"}
    assert "the last 30 executions" in found["XLA601"].message


@pytest.mark.slow
def test_an_optimizer_that_updates_in_place_gives_its_memory_back(tmp_path: Path) -> None:
    text = printed(tmp_path, "in-place")
    state = state_of(text)
    assert donation.donated_inputs(state) == 3 * 120  # parameters and the two states of Adam
    assert donation.updated_parameters(state) == pytest.approx(120, rel=0.1)
    # A busy machine makes the host wait at times: that alone may be told.
    assert {f.code for f in diagnose(load(["-"], text)).findings} <= {"XLA601"}
