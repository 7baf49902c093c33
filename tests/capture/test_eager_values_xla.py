"""Values of eager mode are shared with the host when they are there, and not before."""

from __future__ import annotations

import json
import sys

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.experimental


def main(index):
    torch_xla.experimental.eager_mode(True)
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        ids = torch.zeros(2, 16, dtype=torch.int64).to(device)
        target = torch.arange(32, device=device) % 64
        loss = torch.nn.functional.cross_entropy(model(ids).view(-1, 64), target.view(-1))
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.slow
def test_labels_of_eager_mode_are_looked_at_when_they_are_there(tmp_path):
    """torch_xla ends the process (toDLPack) if it is asked for a buffer that is not there yet."""
    (tmp_path / "train.py").write_text(PROGRAM)
    done = profile(
        tmp_path, "--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((tmp_path / "r.json").read_text())
    assert [core["steps"] for core in report["cores"]] == [6, 6]
    assert "XLA411" not in {item["code"] for item in report["findings"]}
