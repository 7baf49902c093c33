"""Real torch_xla: the agent gets into every Python of a command, however that was started.

One command starts programs in many ways, two at a time; each takes a number of steps of its own,
so that the record tells them apart.
"""

from __future__ import annotations

import json
import shutil
import stat
import sys
from typing import TYPE_CHECKING

import pytest
from test_profile_xla import profile

from xladoctor.capture import rundir
from xladoctor.diagnosis import diagnose
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

TRAIN = """\
def train(steps):
    import torch
    import torch_xla
    device = torch_xla.device()
    weight = torch.ones(4, device=device).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        torch_xla.sync()
"""

FILES = {
    "lib/training.py": TRAIN,
    "script.py": "import sys, training\ntraining.train(int(sys.argv[1]))\n",
    # The parent has imported torch_xla, threads and all, when it forks.
    "lib/pack/__main__.py": """\
import multiprocessing, torch_xla, training
child = multiprocessing.get_context("fork").Process(target=training.train, args=(2,))
child.start(); child.join()
training.train(3)
""",
    "bin/tool": f"""\
#!{sys.executable}
import multiprocessing, training
if __name__ == "__main__":
    for method, steps in (("spawn", 4), ("forkserver", 5)):
        context = multiprocessing.get_context(method)
        child = context.Process(target=training.train, args=(steps,))
        child.start(); child.join()
        assert child.exitcode == 0
""",
    "worker.py": "import os, training\ntraining.train(6 + int(os.environ['LOCAL_RANK']))\n",
    # What `accelerate launch` does for one machine without its own xla launcher: it starts
    # `python -u script` with a copy of its environment, in which it has set variables of its own.
    "launcher.py": """\
import os, subprocess, sys
environ = {**os.environ, "ACCELERATE_MIXED_PRECISION": "no"}
subprocess.run([sys.executable, "-u", "script.py", "8"], env=environ, check=True)
""",
    # Keeps the agent out, and stays until that was seen.
    "hidden.py": """\
import pathlib, sys, time
sys.path.insert(0, "lib")
import training
training.train(9)
for _ in range(3600):
    if list(pathlib.Path("run").glob("not-reached-*")):
        break
    time.sleep(0.05)
""",
    "lib/sitecustomize.py": "import builtins\nbuiltins.mine = 'ran'\n",
    "lib/usercustomize.py": "",
    "all.sh": """\
set -e
export PYTHONPATH=$PYTHONPATH:lib
(
  python script.py 1
  python -m pack
  python launcher.py
  python -c "import sys; print(mine, 'torch' in sys.modules, 'json' in sys.modules)"
) &
first=$!
(
  bin/tool
  python -m torch.distributed.run --nproc-per-node=2 worker.py
  env -i PJRT_DEVICE=CPU python hidden.py
) &
wait $!
wait $first
""",
}  # fmt: skip


class Ways:
    def __init__(self, folder: Path) -> None:
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                text.replace("python ", f"{sys.executable} ") if name == "all.sh" else text
            )
        (folder / "bin/tool").chmod(stat.S_IRWXU)
        self.folder = folder
        words = ("-o", "run", "--output-format", "json", "--output-file", "r.json", "--")
        self.done = profile(folder, *words, "sh", "all.sh", PJRT_DEVICE="CPU")
        assert self.done.returncode == 0, self.done.stderr
        self.report = json.loads((folder / "r.json").read_text())
        self.processes = [list(rundir.rows(p)) for p in rundir.processes(folder / "run")]


@pytest.fixture(scope="module")
def ways(tmp_path_factory) -> Ways:
    return Ways(tmp_path_factory.mktemp("ways"))


def test_every_process_is_watched_with_its_own_steps(ways):
    """Script, -m and its forked child, spawn, forkserver, torchrun's two, the launcher's."""
    steps = sorted(
        max((row["last"] or 0 for row in rows if row["e"] == "step"), default=0)
        for rows in ways.processes
    )
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(rows[-1]["e"] == "end" for rows in ways.processes)
    assert not rundir.not_started(ways.folder / "run")


#: Steps of all processes, and graphs: the first step's weights are constants still, the later ones'
#: are inputs.
STEPS = sum(range(1, 9))
GRAPHS = sum(min(2, steps) for steps in range(1, 9))


def test_they_are_in_one_report(ways):
    """Who comes after another has its core; who runs beside it has one more."""
    cores = ways.report["cores"]
    assert [core["core"] for core in cores] == list(range(len(cores)))
    assert len(cores) < 8  # whether the two of torchrun meet is theirs to choose
    assert ways.report["summary"]["cores"] == len(cores)
    assert sum(core["steps"] for core in cores) == STEPS
    assert sum(core["compilations"] for core in cores) == GRAPHS


def test_processes_recorded_apart_are_the_cores_of_one_report_too(ways, tmp_path):
    """As on several hosts: each has a run directory of its own, and each calls its core 0."""
    folders = []
    for number, process in enumerate(rundir.processes(ways.folder / "run")):
        folder = tmp_path / f"host{number}"
        shutil.copytree(process, folder / process.name)
        shutil.copy(ways.folder / "run" / "manifest.json", folder)
        folders.append(folder)
    report = diagnose(load(folders))
    assert [core.core for core in report.cores] == list(range(8))
    assert sorted(core.steps for core in report.cores) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sum(core.compilations for core in report.cores) == GRAPHS


def test_a_process_that_keeps_the_agent_out_is_named(ways):
    (note,) = [note for note in ways.report["notes"] if "could not be watched" in note]
    assert "an environment of its own (env -i" in note
    assert "hidden.py" in note


def test_a_process_without_torch_xla_pays_nothing(ways):
    """The user's sitecustomize has run, and neither torch nor json was imported for us."""
    assert "ran False False" in ways.done.stdout.splitlines()
