"""A real program's PT_XLA_DEBUG output and metrics file, as a user would paste them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from xladoctor.diagnosis import diagnose
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.xla, pytest.mark.filterwarnings("ignore")]

#: After warm-up the shape changes each step, so does the graph; a value is read before the step's
#: end, and a boolean mask runs nonzero on the CPU.
PROGRAM = """import torch, torch_xla

device = torch_xla.device()
weight = torch.ones(16, 16, device=device)
torch_xla.sync()
for step in range(16):
    x = torch.ones(8 if step < 6 else 8 + step, 16).to(device)
    loss = (x @ weight).sum()
    if loss > 1e9:  # line 9
        break
    kept = x[x[:, 0] > 0].sum()
    torch_xla.sync()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    (folder / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder, check=True, capture_output=True, text=True,
        env={**os.environ, "PJRT_DEVICE": "CPU", "PT_XLA_DEBUG": "1",
             "XLA_METRICS_FILE": str(folder / "metrics.txt")},
    )  # fmt: skip
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    return folder


def places(report, code: str) -> set[int]:
    return {place.row for f in report.findings if f.code == code for place in f.locations}


def test_the_debug_output_names_the_lines(folder: Path) -> None:
    readings = load([folder / "log.txt"])
    assert {block.kind for block in readings.debug} >= {"compilation", "execution"}
    assert all(block.graph and block.frames for block in readings.debug if block.cause)
    report = diagnose(readings)
    assert 9 in places(report, "XLA101")
    assert 9 in places(report, "XLA210")
    assert any("aten::nonzero" in f.message for f in report.findings if f.code == "XLA501")


def test_the_metrics_file_is_a_series_that_still_compiles(folder: Path) -> None:
    readings = load([folder / "metrics.txt"])
    # torch_xla writes one report at each step's end; the first is that of the set-up.
    assert [report.step for report in readings.reports] == list(range(17))
    report = diagnose(readings)
    found = {f.code: f for f in report.findings}
    assert {"XLA101", "XLA201", "XLA210", "XLA501"} <= found.keys()
    assert "in the last" in found["XLA210"].message
