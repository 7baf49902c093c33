"""Programs that run out of memory on a core with 8 GB and not on one with 16 are told right.

What is right is known without the compiler: each holds tensors that are alive together and cannot
be made smaller, of more than 8 GB and well under 16 (docs of TPU v3: "in cases where data does not
fit into memory on TPU v2 configurations, TPU v3 can ...", https://cloud.google.com/tpu/docs/v3).
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
pytestmark = [pytest.mark.xla, graphs.real]

ROOT = Path(__file__).resolve().parents[2]

#: Bytes that are alive together: a lower bound of what a step needs.
LEAST = {
    # The embedding, its gradient and the two moments of Adam: all four are needed to update it.
    "optimizer": 4 * 4_400_000 * 128 * 4,
    # Logits for each word, kept for the backward pass, and their gradient.
    "vocabulary": 2 * 20_480 * 50_304 * 4,
    # The inputs of 20 layers, kept for the backward pass.
    "activations": 20 * 32_768 * 4_096 * 4,
    # Scores of attention after the softmax, kept for the backward pass, by 6 layers.
    "attention": 6 * 8 * 12 * 2_048 * 2_048 * 4,
}

PROGRAM = """\
import sys

import torch
import torch_xla
from torch import nn

case = sys.argv[1]
device = torch_xla.device()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(768, 3 * 768)
        self.out = nn.Linear(768, 768)

    def forward(self, x):
        q, k, v = self.inputs(x).view(8, 2048, 3, 12, 64).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) / 8, -1)
        return x + self.out((scores @ v).transpose(1, 2).reshape(8, 2048, 768))


if case == "optimizer":
    model = nn.Embedding(4_400_000, 128)
    x = torch.zeros(256, dtype=torch.long)
elif case == "vocabulary":
    model = nn.Linear(128, 50_304)
    x = torch.zeros(20_480, 128)
elif case == "activations":
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.Tanh()) for _ in range(20)))
    x = torch.zeros(32_768, 4096)
else:
    model = nn.Sequential(*(Attention() for _ in range(6)))
    x = torch.zeros(8, 2048, 768)
model = model.to(device)
x = x.to(device)
labels = torch.zeros(20_480, dtype=torch.long, device=device)
if case == "optimizer":
    optimizer = torch.optim.Adam(model.parameters())
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    out = model(x)
    if case == "vocabulary":
        loss = nn.functional.cross_entropy(out, labels)
    else:
        loss = out.pow(2).mean()
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
