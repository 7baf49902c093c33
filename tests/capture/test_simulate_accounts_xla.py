"""What a program that asks torch_xla's metrics is told on simulated cores."""

from __future__ import annotations

import json
import sys

import pytest
from test_profile_xla import profile

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

#: Core 0 launches 3 graphs of one kind, core 1 six; each clears in the middle of the others' work,
#: over and over. Without an account for each core, a launch would count below zero.
ASKS = """\
import json
import torch
import torch_xla
import torch_xla.debug.metrics as met


def asked():
    compiled, executed = met.metric_data("CompileTime"), met.metric_data("ExecuteTime")
    return {
        "compiled": compiled and compiled[0],
        "executed": executed and executed[0],
        "new": met.counter_value("UncachedCompile"),
        "found": met.counter_value("CachedCompile"),
    }


def main(index):
    device = torch_xla.device()
    told = [asked()]
    for round in range(8):
        met.clear_all()
        for _ in range(3 * (index + 1)):
            value = torch.ones(4, device=device) * (10.0 + index)
            torch_xla.sync()
            value.cpu()
        told.append(asked())
    with open(f"told-{index}.json", "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_each_core_counts_its_launches_and_clears_them_alone(tmp_path, cores):
    (tmp_path / "train.py").write_text(ASKS)
    done = profile(
        tmp_path, "--simulate-cores", str(cores), "-o", "run", "--output-format", "json",
        "--output-file", "r.json", "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for core in range(cores):
        first, *rounds = json.loads((tmp_path / f"told-{core}.json").read_text())
        launches = 3 * (core + 1)
        assert first == {"compiled": None, "executed": None, "new": None, "found": None}
        assert [one["executed"] for one in rounds] == [launches] * 8
        # One of the first round's launches compiled; which core was first is not said.
        assert all(one["found"] == launches for one in rounds[1:])
        assert rounds[0]["found"] + (rounds[0]["new"] or 0) == launches
        assert rounds[0]["compiled"] == rounds[0]["new"]
