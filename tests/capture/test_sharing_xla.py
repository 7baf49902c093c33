"""Work that all cores do alike: told where a loader gives it to them, and only there."""

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

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

PROGRAM = """
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, Subset
from torch.utils.data.distributed import DistributedSampler

ROWS = TensorDataset(torch.arange(96.0).reshape(24, 4), torch.arange(24))


class Zeros(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, at):
        return torch.zeros(4), 0


class Noise(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, at):
        return torch.randn(4), 0


class Stream(IterableDataset):
    def __init__(self, first, step):
        self.first, self.step = first, step

    def __iter__(self):
        for at in range(self.first, 24, self.step):
            yield ROWS[at]


def loader_of(case, core, cores):
    if case == "drawn":
        return [(torch.randn(4, 4), torch.zeros(4)) for _ in range(6)]
    if case == "shuffled":
        torch.manual_seed(core)
    if case in ("sampled", "sampled-noise"):
        data = ROWS if case == "sampled" else Noise()
        sampler = DistributedSampler(data, cores, core, shuffle=False)
        return DataLoader(data, batch_size=4, sampler=sampler)
    if case == "part":
        return DataLoader(Subset(ROWS, range(core, 24, cores)), batch_size=4)
    if case == "zeros":
        return DataLoader(Zeros(), batch_size=4)
    if case == "stream-part":
        return DataLoader(Stream(core, cores), batch_size=4)
    if case == "stream":
        return DataLoader(Stream(0, 1), batch_size=4)  # line stream
    return DataLoader(ROWS, batch_size=4, shuffle=case == "shuffled")  # line whole


def main(index, case):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    sharing = "sampled" if case == "evaluation" else case
    loader = loader_of(sharing, xr.global_ordinal(), xr.world_size())
    if case == "device-loader":
        loader = pl.MpDeviceLoader(loader, device)
    for epoch in range(2):
        for x, _ in loader:
            optimizer.zero_grad()
            model(x.to(device)).sum().backward()
            xm.optimizer_step(optimizer)
            torch_xla.sync()
        if case == "evaluation":
            with torch.no_grad():
                for x, _ in pl.MpDeviceLoader(DataLoader(ROWS, batch_size=4), device):  # line eval
                    total = model(x).sum()
                torch_xla.sync()
"""

#: Case to the line that is told, whether an optimizer steps on the samples, and their order.
ALIKE = {
    "whole": ("whole", True, True),
    "device-loader": ("whole", True, True),
    "shuffled": ("whole", True, False),
    "stream": ("stream", True, True),
    "evaluation": ("eval", False, True),
}
#: Shared out, or made alike on purpose.
QUIET = ("drawn", "sampled", "sampled-noise", "part", "zeros", "stream-part")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return simulated.run_cases(tmp_path_factory.mktemp("sharing"), 2, PROGRAM, [*ALIKE, *QUIET])


def told(run: Run) -> list[tuple[int, bool, bool]]:
    assert run.error is None, run.stderr
    assert not [facts for kind, facts in run.events if kind == "check-off"]
    found = [facts for kind, facts in run.events if kind == "silent"]
    return [
        (facts["place"][1], facts["stepped"], facts["order"])
        for facts in found
        if facts["check"] == "batches"
    ]


def line(mark: str) -> int:
    lines = PROGRAM.splitlines()
    return next(number for number, text in enumerate(lines, 1) if f"# line {mark}" in text)


@pytest.mark.parametrize("case", ALIKE)
def test_a_loader_that_gives_all_cores_the_same_is_told(runs: dict[str, Run], case: str) -> None:
    mark, stepped, order = ALIKE[case]
    assert told(runs[case]) == [(line(mark), stepped, order)]


@pytest.mark.parametrize("case", QUIET)
def test_what_is_shared_out_or_alike_on_purpose_is_not(runs: dict[str, Run], case: str) -> None:
    assert told(runs[case]) == []


#: The linter cannot know that these loaders are of a `DataLoader`; in "whole" it can.
START = """

if __name__ == "__main__":
    import sys
    torch_xla.launch(main, args=(sys.argv[1],))
"""


def report(folder: Path, case: str) -> list[dict]:
    (folder / "train.py").write_text(PROGRAM + START)
    done = profile(
        folder, "--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json",
        "--", sys.executable, "train.py", case,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    findings = json.loads((folder / "r.json").read_text())["findings"]
    return [item for item in findings if item["code"] == "XLA402"]


def test_the_report_says_it_once_with_the_linters_fix(tmp_path: Path) -> None:
    found = report(tmp_path, "whole")
    measured = [item for item in found if "runtime" in item["confirmed_by"]]
    [finding] = measured
    assert finding["severity"] == "error"
    assert finding["locations"][0]["row"] == line("whole")
    assert "all 2 cores get the same samples" in finding["message"]
    assert "train on it alike" in finding["message"]
    assert finding["cores"] == [0, 1]


@pytest.mark.slow
def test_an_evaluation_that_all_cores_make_is_information(tmp_path: Path) -> None:
    found = report(tmp_path, "evaluation")
    [finding] = [item for item in found if "runtime" in item["confirmed_by"]]
    assert finding["locations"][0]["row"] == line("eval")
    assert "no optimizer steps on it" in finding["message"]
    if "lint" not in finding["confirmed_by"]:
        assert finding["severity"] == "info"
