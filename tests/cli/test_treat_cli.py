"""``xladoctor treat``: an old program runs again, and what its fixes gained is measured."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.cli.app import main

ROOT = Path(__file__).resolve().parents[2]

#: Invented: a classifier as it was written in 2020.
OLD = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(index):
    torch.manual_seed(0)
    device = xm.xla_device()
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    sampler = DistributedSampler(
        data, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(), shuffle=False
    )
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        total = 0.0
        for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.item()
        xm.master_print("epoch", epoch, "loss", total / len(loader))


if __name__ == "__main__":
    xmp.spawn(train, nprocs=8, start_method="fork")
"""


def test_a_missing_script_is_refused(capsys):
    assert main(["treat", "missing.py"]) == 2
    assert capsys.readouterr().err == (
        "xladoctor: cannot read missing.py: No such file or directory\n"
    )


def test_a_notebook_and_broken_code_are_refused(tmp_path, capsys):
    notebook, broken = tmp_path / "n.ipynb", tmp_path / "b.py"
    notebook.write_text("{}")
    broken.write_text("def f(:\n")
    assert main(["treat", str(notebook)]) == 2
    assert "exported first" in capsys.readouterr().err
    assert main(["treat", str(broken)]) == 2
    assert "line 1: does not parse" in capsys.readouterr().err


@pytest.mark.xla
def test_an_old_program_runs_again_and_waits_less(tmp_path):
    script = tmp_path / "old.py"
    script.write_text(OLD)
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "treat", "--simulate-cores", "2", "--unsafe-fixes",
         "--write", "old.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "XLA" in line or "as it is" in line]
    assert "fails: ValueError: Unsupported nprocs (8)" in done.stdout
    verdicts = [line for line in rows if line.endswith(": kept")]
    assert [re.findall(r"XLA\d+", line) for line in verdicts] == [
        ["XLA404", "XLA801", "XLA802"], ["XLA101"],
    ]  # fmt: skip
    # One wait per step before, one per epoch after; the same two losses.
    table = {code: row for row in rows for code in re.findall(r"XLA\d+", row) if "as before" in row}
    found = re.search(r"([\d.]+) +([\d.]+) +[\d.]+ \w+ +2 of 2 as before$", table["XLA101"])
    assert found is not None, done.stdout
    assert float(found[1]) < 0.5  # waits per step
    text = script.read_text()
    assert "nprocs" not in text
    assert "total += loss.detach()" in text
    assert "total = float(total)" in text
    assert sorted(item.name for item in tmp_path.iterdir()) == [".xladoctor", "old.py"]
