"""Training that is wrong without an error is told, and healthy programs are not accused of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
import simulated
from test_profile_xla import profile

if TYPE_CHECKING:
    from pathlib import Path

    from simulated import Run

PROGRAM = """
import numpy as np
import torch, torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch.nn.functional as F
import torch_xla.distributed.parallel_loader as pl
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
from torch_xla.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.embed = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.body = nn.Linear(8, 8)
        self.side = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 5)

    def forward(self, ids):
        case = self.case
        h = self.embed(ids)
        if case == "norm":
            h = self.norm(h)
        if case in ("frozen", "required"):
            if case == "required":
                h.requires_grad_()
            h = checkpoint(self.body, h)
        else:
            h = self.body(h)
        if case == "detached":
            h = h + self.side(h).detach()
        if case in ("dropout", "seeded"):
            h = self.drop(h)
        if case in ("noise", "seeded"):
            h = h + torch.randn_like(h)  # line noise
        if case == "whole":
            h = h - h.amax()  # line whole
        if case == "expanded":
            far = torch.arange(8.0, device=h.device).expand(4, -1)
            far[:, 4:] += 1  # line expanded
            h = h + far
        if case == "copied":
            far = torch.arange(8.0, device=h.device).expand(4, -1).clone()
            far[:, 4:] += 1
            h = h + far
        if case == "by-row":
            h = h - h.amax(dim=1, keepdim=True) + torch.amax(h, axis=0) + h.sum().amax()
        if case == "cut":
            h = xm.all_reduce("sum", h, scale=0.5)  # line cut
        if case == "plain-cut":
            h = xm.all_reduce("sum", h)
        if case == "differentiable":
            h = xf.all_reduce("sum", h, scale=0.5)
        if case == "own-rows":
            everyone = xm.all_gather(h)
            h = torch.cat([h, everyone.sum().expand(4, 8)])
            h = h[:4] + h[4:]
        return self.head(h)


class Noisy(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, at):
        return at + np.random.randn(4)


def sharded(case, device):
    model = FSDP(nn.Linear(16, 16).to(device))
    model(torch.ones(2, 16, device=device)).sum().backward()
    if case == "sharded":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # line clip
    else:
        model.clip_grad_norm_(1.0)
    torch_xla.sync()
    xm.save(model.state_dict(), "shard.pt", master_only=case == "sharded")


def main(index, case):
    device = torch_xla.device()
    if case.startswith("sharded"):
        return sharded(case, device)
    if case == "evaluated":
        sampler = DistributedSampler(list(range(21)), 2, index, shuffle=False)  # line evaluation
        return list(sampler)
    if case.startswith("augmented"):
        np.random.seed(0 if case == "augmented" else index)  # line seed
        loader = DataLoader(Noisy(), 2, sampler=range(index, 16, 2))
        return list(pl.MpDeviceLoader(loader, device))
    torch.manual_seed(0)
    model = Net(case).to(device)
    model.embed.requires_grad_(case not in ("frozen", "required"))
    if case in ("narrow", "moving"):
        model.to(torch.bfloat16)
    trained = Net(case).parameters() if case == "stale" else model.parameters()
    optimizer = torch.optim.SGD(trained, lr={"narrow": 1e-6, "moving": 5.0}.get(case, 0.1))
    if case == "seeded":
        torch_xla.manual_seed(3 + index)
    if case in ("one-rank", "shared-out"):
        rank = 0 if case == "one-rank" else index
        sampler = DistributedSampler(list(range(21)), 2, rank)  # line sampler
        assert len(list(sampler)) == 11
    torch.manual_seed(100 + index)
    for step in range(5):
        ids = torch.randint(0, 10, (4,))
        labels = torch.randint(0, 5, (4,))
        if case == "rows":
            ids[0] = 99
        if case == "labels":
            labels[0] = 7
        if case == "ignored":
            labels[0] = -100
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids.to(device)), labels.to(device))
        if case == "gathered":
            far = torch.full((4, 1), 9).to(device)
            loss = loss + model.head(model.embed.weight[:4]).gather(1, far).sum()  # line gathered
        logged = xm.all_reduce("sum", loss.detach(), scale=0.5)
        loss.backward()
        if case == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # line own
        if case == "stale":
            optimizer.step()
        else:
            xm.optimizer_step(optimizer)
        torch_xla.sync()
"""

pytestmark = pytest.mark.xla

HEALTHY = (
    "none",
    "differentiable",
    "ignored",
    "required",
    "own-rows",
    "moving",
    "copied",
    "by-row",
    "shared-out",
    "sharded-right",
)
FAULTY = {
    "norm": "buffers",
    "frozen": "no-gradient",
    "detached": "no-gradient",
    "dropout": "draws",
    "noise": "draws",
    "cut": "gradient-cut",
    "plain-cut": "gradient-cut",
    "rows": "embedding",
    "labels": "labels",
    "narrow": "updates",
    "whole": "difference",
    "stale": "stale-optimizer",
    "augmented": "sample-draws",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    cases = [*HEALTHY, *FAULTY, "seeded", "sharded", "one-rank", "augmented-apart", "evaluated"]
    return simulated.run_cases(tmp_path_factory.mktemp("checks"), 2, PROGRAM, cases)


def _told(run: Run) -> set[tuple[str, int]]:
    assert run.error is None, run.stderr
    assert not [facts for kind, facts in run.events if kind == "check-off"]
    return {(facts["check"], facts["core"]) for kind, facts in run.events if kind == "silent"}


def _line(mark: str) -> int:
    lines = PROGRAM.splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"# line {mark}" in line)


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_program_is_not_accused(runs: dict[str, Run], case: str) -> None:
    assert _told(runs[case]) == set()


@pytest.mark.parametrize("case", FAULTY)
def test_a_fault_is_told_of_each_core(runs: dict[str, Run], case: str) -> None:
    checks = {check for check, _ in _told(runs[case])}
    assert FAULTY[case] in checks
    if FAULTY[case] != "buffers":  # compared by the core that comes last
        assert {core for check, core in _told(runs[case]) if check == FAULTY[case]} == {0, 1}


def test_samplers_with_one_rank_are_told_at_their_line(runs: dict[str, Run]) -> None:
    [facts] = [f for kind, f in runs["one-rank"].events if kind == "silent"]
    assert (facts["check"], facts["place"][1]) == ("samples", _line("sampler"))
    assert (facts["never"], facts["twice"], facts["length"]) == (10, 11, 21)


def test_what_is_repeated_in_an_evaluation_is_told(runs: dict[str, Run]) -> None:
    [facts] = [f for kind, f in runs["evaluated"].events if kind == "silent"]
    assert (facts["check"], facts["place"][1]) == ("padded", _line("evaluation"))
    assert (facts["twice"], facts["length"]) == (1, 21)


def test_both_faults_of_a_sharded_model_are_told_at_their_lines(runs: dict[str, Run]) -> None:
    run = runs["sharded"]
    assert {check for check, _ in _told(run)} == {"sharded-clip", "sharded-save"}
    rows = {f["check"]: f["place"][1] for kind, f in run.events if kind == "silent"}
    assert rows["sharded-clip"] == _line("clip")


def test_cores_with_seeds_of_their_own_draw_other_numbers(runs: dict[str, Run]) -> None:
    seeds: dict[int, list[str]] = {}
    for kind, facts in runs["seeded"].events:
        if kind == "silent" and facts["operation"] == "dropout":
            seeds[facts["core"]] = facts["seeds"]
    assert set(seeds) == {0, 1}
    assert seeds[0] != seeds[1]


def test_samples_are_augmented_alike_only_if_the_cores_are_seeded_alike(
    runs: dict[str, Run],
) -> None:
    for case, alike in (("augmented", True), ("augmented-apart", False)):
        told = [f for kind, f in runs[case].events if kind == "silent"]
        assert {(f["check"], f["core"], f["operation"], f["dataset"]) for f in told} == {
            ("sample-draws", core, "numpy.random", "Noisy") for core in range(2)
        }
        assert {f["place"][1] for f in told} == {_line("seed")}
        assert (told[0]["seeds"] == told[1]["seeds"]) is alike


@pytest.mark.slow
def test_the_report_names_the_line_to_change(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        PROGRAM
        + """

def all_of_them(index):
    for case in ("cut", "noise", "labels", "clipped", "gathered", "expanded", "copied"):
        main(index, case)


if __name__ == "__main__":
    torch_xla.launch(all_of_them)
"""
    )
    done = profile(
        tmp_path, "--simulate-cores", "2", "-o", "run", "--output-format", "json", "--output-file",
        "report.json", "--check", "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    found = {finding["code"]: finding for finding in report["findings"]}
    assert {"XLA303", "XLA317", "XLA433", "XLA434"} <= set(found)
    rows = {f["locations"][0]["row"] for f in report["findings"] if f["code"] == "XLA317"}
    assert _line("gathered") in rows
    clips = [f for f in report["findings"] if f["code"] == "XLA303"]
    assert any("clip_grad_norm_ returned" in clip["message"] for clip in clips)
    assert {clip["locations"][0]["row"] for clip in clips} == {_line("own")}
    seen = [one for one in report["findings"] if "runtime" in one["confirmed_by"]]
    cut = next(one for one in seen if one["code"] == "XLA433")
    (written,) = (one for one in seen if one["code"] == "XLA318")
    assert written["locations"][0]["row"] == _line("expanded")
    assert [place["row"] for place in cut["locations"]] == [_line("cut")]
    assert cut["cores"] == [0, 1]
    assert found["XLA434"]["locations"][0]["row"] == _line("noise")
