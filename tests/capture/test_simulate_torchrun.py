"""Launchers of one process for each core: each process is one, or the run is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor.capture.simulate.environment import refusal

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import torch_xla

def main(index):
    open("trained", "w").close()

if __name__ == "__main__":
    torch_xla.launch(main)
"""


def profile(
    folder: Path, *words: str, cores: int = 4, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )


CORE = """
import torch, torch_xla
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend

def main():
    dist.init_process_group("xla", init_method="xla://")
    device, rank = torch_xla.device(), dist.get_rank()
    total = torch.full((2,), rank + 1.0).to(device)
    dist.all_reduce(total)
    assert total.cpu().tolist() == [3.0, 3.0]
    parts = [torch.full((2,), one + 5.0).to(device) for one in range(2)] if rank == 0 else None
    mine = torch.zeros(2).to(device)
    dist.scatter(mine, parts, src=0)
    assert mine.cpu().tolist() == [rank + 5.0] * 2
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.full((3, 4), rank + 1.0).to(device)).pow(2).mean().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    assert dist.get_world_size() == 2
    with open(f"ended-{rank}", "w") as file:
        file.write(str(model.weight.sum().item()))

main()
"""


@pytest.mark.xla
def test_each_process_of_torchrun_is_one_core(tmp_path):
    (tmp_path / "train.py").write_text(CORE)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    debug = {"PT_XLA_DEBUG_LEVEL": "2", "PT_XLA_DEBUG_FILE": str(tmp_path / "debug")}
    done = profile(tmp_path, "-o", "run", "--", *torchrun, "train.py", cores=2, **debug)
    assert done.returncode == 0, done.stderr
    ended = [(tmp_path / f"ended-{rank}").read_text() for rank in range(2)]
    assert ended[0] == ended[1]
    # What torch_xla keeps and writes for a process is that of one core here.
    metrics = [file.read_text() for file in tmp_path.glob("run/p*/metrics.txt")]
    found = [re.search(r"CompileTime\s+TotalSamples: (\d+)", one) for one in metrics]
    compiled = [int(one[1]) for one in found if one is not None]
    assert len(compiled) == 2
    # torch_xla lets the first process of a host write it.
    causes = (tmp_path / "debug").read_text().count("Compilation Cause")
    assert 0 < causes <= max(compiled)
    result = json.loads(
        subprocess.run(
            [sys.executable, "-m", "xladoctor", "report", "run", "--output-format", "json"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    )
    assert result["summary"]["cores"] == 2


@pytest.mark.xla
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_torchrun_with_another_number_of_processes(tmp_path, processes):
    (tmp_path / "train.py").write_text(TRAIN)
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone"
    (tmp_path / "start.sh").write_text(f"{torchrun} --nproc-per-node={processes} train.py\n")
    done = profile(tmp_path, "--", "sh", "start.sh")
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("xladoctor: --simulate-cores 4 does not run here: torchrun has started ")
    assert "use --nproc-per-node 4, or " in last
    assert not (tmp_path / "trained").exists()


@pytest.mark.xla
def test_one_process_of_several_by_its_environment(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = profile(tmp_path, "train.py", WORLD_SIZE="2", RANK="0")
    assert done.returncode == 2
    assert "WORLD_SIZE=2 says that this is one process of 2" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "trained").exists()


def test_what_is_one_process_is_not_refused():
    assert refusal({}, 4) is None
    assert refusal({"WORLD_SIZE": "1", "RANK": "0"}, 4) is None
    assert refusal({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}, 1) is None
    assert refusal({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}, 4) is not None
    assert refusal({"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}, 4) is not None
    of_four = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}
    assert refusal(of_four, 4) is None
    assert "torchrun again" in str(refusal({**of_four, "XLADOCTOR_HOSTS": "{}"}, 4))
