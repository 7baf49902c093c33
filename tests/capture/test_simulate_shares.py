"""Cores that each take another part of a tensor, before and after a graph's first collective."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

CORES = 4

PROGRAM = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index, case):
    device = torch_xla.device()
    value = (torch.arange(4.0) + 10 * index).reshape(1, 4).to(device)
    torch_xla.sync()
    if case == "before":
        value = torch.narrow(value, 1, index, 1) * 2
        result = xm.all_reduce("sum", value)
    else:
        gathered = xm.all_gather(value, dim=1)
        if case == "cut":
            torch_xla.sync()
        mine = torch.narrow(gathered, 1, 4 * index, 4)  # what this core has brought
        result = xm.all_reduce("sum", mine)
    torch_xla.sync()
    with open(f"result{index}.json", "w") as file:
        json.dump(result.cpu().tolist(), file)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    return simulated.run_cases(folder, CORES, PROGRAM, ["before", "after", "cut"])


def test_other_parts_before_the_first_collective_are_run_apart(runs):
    done = runs["before"]
    assert done.error is None, done.stderr
    total = 2.0 * sum(11 * core for core in range(CORES))
    assert set(map(str, done.results.values())) == {str([[total]])}


def test_other_parts_after_it_are_said_to_be_the_limit_of_simulated_cores(runs):
    done = runs["after"]
    assert done.error is not None
    assert "On a TPU such a program runs" in done.error
    assert "call torch_xla.sync() behind that collective" in done.error
    [facts] = [facts for kind, facts in done.events if kind == "graphs-differ"]
    assert (facts["what"], facts["stopped"]) == ("shares", True)


def test_what_it_says_to_do_helps(runs):
    done = runs["cut"]
    assert done.error is None, done.stderr
    column = [float(sum(10 * core + at for core in range(CORES))) for at in range(4)]
    assert set(map(str, done.results.values())) == {str([column])}
