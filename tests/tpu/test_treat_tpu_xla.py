"""``treat --tpu``: what each fix gains in device time, by the TPU's compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tpu import graphs

pytest.importorskip("torch_xla")
pytestmark = [pytest.mark.xla, graphs.real]

ROOT = Path(__file__).resolve().parents[2]

#: Invented: a read on each step, which the fix moves out of the way.
PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

device = torch_xla.device()
model = torch.nn.Linear(256, 128).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step in range(8):
    optimizer.zero_grad()
    x = torch.ones(64, 256).to(device)
    loss = model(x).pow(2).mean()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
    total += loss.item()
print("loss", total)
"""


@pytest.mark.slow
def test_each_version_has_its_device_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ["treat", "train.py", "--no-repeat", "--tpu", "v5e-8", "--simulate-cores", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", *words, "--output-format", "json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    trials = [found["original"], *(fix["run"] for fix in found["fixes"]), found["final"]]
    assert len(trials) > 2
    for trial in trials:
        (row,) = trial["tpu"]
        assert row["target"] == "v5e-8"
        assert row["device_seconds"] > 0
        assert row["memory_bytes"] > 4 * (256 * 128 + 64 * 256)
    gains = [row["name"] for fix in found["fixes"] for row in fix["gain"]]
    assert "tpu_step:v5e-8" in gains
