"""A real program on simulated cores, and what the TPU compiler says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.test_contract import PLACE, wrong
from tests.test_data import schema, strict
from tests.tpu import graphs

pytest.importorskip("torch_xla")
pytestmark = [pytest.mark.xla, graphs.real]

ROOT = Path(__file__).resolve().parents[2]

NUMBER, MAYBE = (int, float), type(None)
SECONDS = (int, float, MAYBE)
ENTRY = {
    "target": (str,), "topology": (str,), "compiler": (str,),
    "step": {
        "device_seconds": SECONDS, "host_seconds": SECONDS, "idle_share": SECONDS,
        "memory_bytes": (int, MAYBE), "memory_limit_bytes": (int, MAYBE), "fits": (bool, MAYBE),
        "matrix_unit_share": SECONDS, "flops": SECONDS,
    },
    "graphs": [
        {
            "graph": (str, MAYBE), "per_step": NUMBER, "cycles": (int, MAYBE),
            "device_seconds": SECONDS, "flops": SECONDS, "fits": (bool, MAYBE),
            "error": (str, MAYBE),
            "memory": (
                {"arguments": (int,), "temporary": (int,), "output": (int,), "aliased": (int,),
                 "code": (int,)}, MAYBE,
            ),
            "lines": [
                {"filename": (str,), "row": (int,), "operation": (str,), "cycles": (int,)}
            ],
        }
    ],
}  # fmt: skip

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 512)
        self.last = torch.nn.Linear(512, 8)

    def forward(self, x):
        x = torch.relu(self.first(x))  # line FIRST
        return self.last(x)  # line LAST


def train(index):
    device = torch_xla.device()
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256, device=device)).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optimizer)  # line STEP
        torch_xla.sync()


if __name__ == "__main__":
    xmp.spawn(train)
"""


def row_of(mark: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if f"# line {mark}" in line)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    base = {key: value for key, value in os.environ.items() if not key.startswith("PJRT")}
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", *words],
        env={**base, "PYTHONPATH": str(ROOT)},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tpu")
    (home / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = run(
        home, "profile", "--simulate-cores", "2", "-o", "run", "--tpu", "v3-8,v5e-8",
        "--max-tpu-step-ms", "0.000001", "--max-hbm", "100GiB",
        "--output-format", "json", "--output-file", "report.json", "--html", "page.html",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    (home / "stderr").write_text(done.stderr, encoding="utf-8")
    (home / "code").write_text(str(done.returncode), encoding="utf-8")
    return home


def entries(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["tpu"]
    return found


def test_the_report_has_an_entry_for_each_target_in_its_fixed_form(folder: Path) -> None:
    found = entries(folder)
    assert [entry["target"] for entry in found] == ["v3-8", "v5e-8"]
    assert [entry["topology"] for entry in found] == ["v3:2x2x1", "v5e:2x4"]
    for entry in found:
        assert wrong(ENTRY, entry) == []
        assert entry["graphs"]
    whole = json.loads((folder / "report.json").read_text())
    jsonschema.Draft202012Validator(strict(schema())).validate(whole)
    assert PLACE  # the shape of places is that of all reports


def test_cycles_stand_at_the_users_lines_backward_pass_and_optimizer_included(
    folder: Path,
) -> None:
    for entry in entries(folder):
        step = next(graph for graph in entry["graphs"] if graph["per_step"])
        rows = {row["row"]: row for row in step["lines"]}
        assert {row_of("FIRST"), row_of("LAST"), row_of("STEP")} <= set(rows)
        assert {row["filename"] for row in step["lines"]} == {"train.py"}
        backward = {row["row"] for row in step["lines"] if row["backward"]}
        assert backward & {row_of("FIRST"), row_of("LAST")}
        known = sum(row["cycles"] for row in step["lines"])
        assert known > 0.8 * step["cycles"]


def test_cycles_are_told_by_module_and_by_kind_too(folder: Path) -> None:
    for entry in entries(folder):
        step = next(graph for graph in entry["graphs"] if graph["per_step"])
        modules = {tuple(row["module"]): row["cycles"] for row in step["modules"]}
        assert {("Net",), ("optimizer Adam",)} <= set(modules)
        assert sum(modules.values()) == step["cycles"]
        assert sum(row["cycles"] for row in step["kinds"].values()) == step["cycles"]
    again = run(folder, "report", "run", "--tpu", "v3-8")
    assert "By module of the model" in again.stdout
    assert "By kind of operation" in again.stdout


def test_updated_weights_take_the_memory_of_the_old_ones(folder: Path) -> None:
    weights = 4 * (256 * 512 + 512 + 512 * 8 + 8)
    for entry in entries(folder):
        step = next(graph for graph in entry["graphs"] if graph["per_step"])
        # Weights and the two moments of Adam.
        assert step["memory"]["aliased"] >= 3 * weights
        assert entry["step"]["fits"] is True


def test_a_broken_limit_is_exit_code_1_and_one_that_is_kept_is_not_told(folder: Path) -> None:
    assert (folder / "code").read_text() == "1"
    said = (folder / "stderr").read_text()
    assert "limit broken: --max-tpu-step-ms" in said
    assert "--max-hbm" not in said
    assert "libtpu_init" not in said  # the compiler's own noise


def test_the_page_shows_it_and_a_second_report_needs_no_compiler(folder: Path) -> None:
    page = (folder / "page.html").read_text()
    assert "v5e-8: device time of a step" in page
    assert "Device memory along the schedule" in page
    assert "By module of the model" in page
    assert "optimizer Adam" in page
    again = run(folder, "report", "run", "--tpu", "v5e-8,v3-8")
    assert again.returncode == 0
    assert "compiling" not in again.stderr
    assert "asking the TPU compiler" not in again.stderr
    assert "device time of a step" in again.stdout
