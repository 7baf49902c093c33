"""A data set that raises in the thread that loads the batches: torch_xla ends the loop quietly."""

from __future__ import annotations

import json
import sys

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, row):
        if row == 7:
            raise KeyError("no such image")  # line missing
        return torch.ones(4)


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=index)
    for rows in pl.MpDeviceLoader(loader, device):
        model(rows).sum().backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


def test_a_loop_that_ends_for_want_of_batches_is_told(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json", "--")
    done = profile(tmp_path, *words, sys.executable, "train.py")
    # The program itself is none the wiser.
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["summary"]["steps"] == 3
    told = [finding for finding in report["findings"] if finding["code"] == "XLA411"]
    assert sorted(core for finding in told for core in finding["cores"]) == [0, 1]
    for finding in told:
        assert "got no more batches" in finding["message"]
        assert finding["message"].endswith("KeyError: 'no such image'")
    assert report["summary"]["verdict"].startswith("The loop ended early")
    # With worker processes the line is in another process; without, it is the data set's own.
    row = PROGRAM[: PROGRAM.index("# line missing")].count("\n") + 1
    rows = [place["row"] for finding in told for place in finding["locations"]]
    assert row in rows
