"""Cores that part are found at the first step, with the parameter and the line to blame."""

from __future__ import annotations

import pytest
import simulated

from xladoctor.capture.simulate import owners

torch = pytest.importorskip("torch")

PROGRAM = """
import torch, torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from xladoctor import cores_differ_on_purpose


def main(index, fault):
    device = torch_xla.device()
    torch.manual_seed(index if fault == "seed" else 0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + index)
    if fault == "on-purpose":
        cores_differ_on_purpose(model)
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4).to(device)).pow(2).sum()
        loss.backward()
        if fault == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # line clip
        if fault == "data":
            for p in model.parameters():
                p.grad.data.mul_(0.5)  # line data
        if fault in ("plain", "on-purpose"):
            optimizer.step()  # line plain
        else:
            xm.optimizer_step(optimizer)
        torch_xla.sync()
        if fault == "late" and step == 2 and index == 1:
            with torch.no_grad():
                model[1].bias.copy_(torch.ones(2))
        torch_xla.sync()
"""

CASES = ("none", "on-purpose", "clip", "data", "plain", "seed", "late")


#: Sections whose cores differ, each for a reason that is none of a fault.
DIFFERENT = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from xladoctor import cores_differ_on_purpose


def steps(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8).to(torch_xla.device())).pow(2).sum().backward()
        optimizer.step()
        torch_xla.sync()


def optimizer_marked(index):
    model = nn.Linear(8, 2).to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cores_differ_on_purpose(optimizer)
    steps(model, optimizer)
    return model.weight


def parameters_marked(index):
    model = nn.Linear(8, 2).to(torch_xla.device())
    cores_differ_on_purpose(model.weight, model.bias)
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return model.weight


def sharded_model(index):
    model = FSDP(nn.Linear(8, 4).to(torch_xla.device()))
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return next(model.parameters())


def sharded_optimizer(index):
    torch.manual_seed(0)
    model = nn.Linear(8, 4).to(torch_xla.device())
    torch.manual_seed(100 + index)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    steps(model, optimizer)
    return optimizer.base_optimizer.param_groups[0]["params"][0]


def all_marked(index):
    cores_differ_on_purpose()
    return optimizer_marked(index)


def main(index):
    left = {}
    for section in SECTIONS:
        torch.manual_seed(index)
        left[section.__name__] = section(index).detach().cpu().tolist()
    with open(f"result{index}.json", "w") as file:
        json.dump(left, file)


SECTIONS = (optimizer_marked, parameters_marked, sharded_model, sharded_optimizer, all_marked)
if __name__ == "__main__":
    torch_xla.launch(main)
"""


def line(mark):
    rows = [text.endswith(f"# line {mark}") for text in PROGRAM.splitlines()]
    return rows.index(True) + 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return simulated.run_cases(tmp_path_factory.mktemp("agreement"), 4, PROGRAM, CASES)


def divergence(runs, fault):
    done = runs[fault]
    assert done.code == 0, done.stderr
    assert "hook off" not in done.stderr
    return done.events


@pytest.mark.xla
@pytest.mark.parametrize("fault", ["none", "on-purpose"])
def test_equal_cores_and_those_that_differ_on_purpose_are_not_reported(runs, fault):
    assert divergence(runs, fault) == []


@pytest.mark.xla
@pytest.mark.parametrize(
    ("fault", "cause", "step"),
    [("clip", "lost", 1), ("data", "lost", 1), ("plain", "missing", 1), ("seed", "start", 0)],
)
def test_cores_that_part_are_named_with_step_parameter_and_line(runs, fault, cause, step):
    [(kind, facts)] = divergence(runs, fault)
    assert kind == "cores-part"
    assert facts["cores"] == [0, 1, 2, 3]
    assert (facts["cause"], facts["step"]) == (cause, step)
    assert facts["parameter"] == "parameter '0.weight'"
    assert facts["difference"] > 1e-3
    assert facts["message"].startswith("cores 0 to 3 each train a model of their own")
    if cause == "lost":
        assert facts["cause_place"][1] == line(fault)
        assert "xm.reduce_gradients(optimizer) first" in facts["suggestion"]
    elif cause == "missing":
        assert facts["place"][1] == line("plain")


@pytest.mark.xla
def test_one_core_that_parts_later_is_named_alone(runs):
    [(kind, facts)] = divergence(runs, "late")
    assert kind == "cores-part"
    assert facts["cores"] == [1]
    assert (facts["step"], facts["equal_at"]) == (4, 3)
    assert facts["parameter"] == "parameter '1.bias'"
    assert facts["cause"] == "unknown"


@pytest.mark.slow
@pytest.mark.xla
def test_cores_that_rightly_hold_different_weights_are_left_alone(tmp_path):
    done = simulated.run(tmp_path, 2, DIFFERENT)
    assert done.code == 0, done.stderr
    assert "hook off" not in done.stderr
    first, second = done.results[0], done.results[1]
    assert len(first) == 5
    # The weights that each section has put apart do differ; nothing is said about any of them.
    assert [name for name in first if first[name] == second[name]] == []
    assert done.events == []


def test_names_are_found_without_holding_what_other_cores_let_go_of(monkeypatch):
    """A list of all objects would: torch warns of a tensor that ends while Python refers to it."""
    block = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    model = torch.nn.Module()
    model.blocks, model.tied = block, block[0]
    monkeypatch.setattr(owners.gc, "get_objects", lambda: pytest.fail("lists all objects"))
    alone = torch.nn.Parameter(torch.ones(3))
    assert owners.names_of([block[1].bias, alone, block[0].weight]) == [
        "parameter 'blocks.1.bias'",
        "parameter of shape [3]",
        "parameter 'blocks.0.weight'",
    ]
