"""Programs that run out of memory on a core with 8 GB and not on one with 16 are told right.

Each holds tensors that are alive together, of more than 8 GB and well under 16: so much a step
needs on the larger core, where the compiler has no reason to compute them again. That such programs
are why v3 has 16 GB is in https://cloud.google.com/tpu/docs/v3 ("where data does not fit into
memory on TPU v2 configurations").
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tpu import graphs

pytest.importorskip("torch_xla")
pytestmark = [pytest.mark.xla, pytest.mark.slow, graphs.real]

ROOT = Path(__file__).resolve().parents[2]

#: Bytes that are alive together: a lower bound of what a step needs.
LEAST = {
    # The embedding, its gradient and the two moments of Adam: all four are needed to update it.
    "optimizer": 4 * 4_400_000 * 128 * 4,
    # Logits for each word: one tensor.
    "vocabulary": 41_600 * 50_304 * 4,
    # The embedding, its gradient and its momentum.
    "momentum": 3 * 6_000_000 * 128 * 4,
    # One large weight and the two moments of Adam; its gradient may be used where it is made.
    "dense": 3 * 16_384 * 41_216 * 4,
}

PROGRAM = """\
import sys

import torch
import torch_xla
from torch import nn

case = sys.argv[1]
device = torch_xla.device()
x = torch.zeros(256, dtype=torch.long)
if case == "optimizer":
    model = nn.Embedding(4_400_000, 128)
elif case == "momentum":
    model = nn.Embedding(6_000_000, 128)
elif case == "vocabulary":
    model, x = nn.Linear(128, 50_304), torch.zeros(41_600, 128)
else:
    model, x = nn.Linear(16_384, 41_216, bias=False), torch.zeros(64, 16_384)
model, x = model.to(device), x.to(device)
labels = torch.zeros(x.shape[0], dtype=torch.long, device=device)
if case in ("optimizer", "dense"):
    optimizer = torch.optim.Adam(model.parameters())
else:
    momentum = 0.9 if case == "momentum" else 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
for _ in range(12):
    optimizer.zero_grad()
    out = model(x)
    if x.dtype == torch.long:
        loss = out.pow(2).mean()
    else:
        loss = nn.functional.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The plan of all four on both."""
    home = tmp_path_factory.mktemp("memory")
    (home / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "plan", "--tpu", "v2-8,v3-8",
         "--output-format", "json", "--", "train.py", f"{{{','.join(LEAST)}}}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=home, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


@pytest.mark.parametrize("case", LEAST)
def test_too_large_for_8_gb_and_not_for_16(rows: list[dict[str, Any]], case: str) -> None:
    small, large = (
        next(row for row in rows if row["target"] == target and case in row["command"])
        for target in ("v2-8", "v3-8")
    )
    assert small["fits"] is False, small
    assert large["fits"] is True, large
    assert LEAST[case] > small["memory_limit_bytes"]
    assert small["memory_bytes"] > small["memory_limit_bytes"]
    # On the larger core the compiler does not need to save, so it needs at least what is alive.
    assert LEAST[case] < large["memory_bytes"] < large["memory_limit_bytes"]
