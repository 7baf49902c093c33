"""Every way to start a program on simulated cores, many of them in one program."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import simulated

from xladoctor.capture import rundir

pytestmark = pytest.mark.xla

ROOT = Path(__file__).resolve().parents[2]

#: A package of its own, as pip would install it.
TRAINING = """
import json
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def _mp_fn(index, start, steps):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 4).to(device)).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
    total = xm.all_reduce("sum", torch.tensor([index + 1.0]).to(device)).item()
    with open(f"{start}-{index}.json", "w") as file:
        json.dump([xr.world_size(), total], file)
"""

MAIN = """
import sys
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla.distributed.xla_multiprocessing import spawn as start
from shipped.training import _mp_fn


def main():
    start(_mp_fn, args=("alias", 1), start_method="fork")
    xmp.spawn(_mp_fn, nprocs=None, args=("nprocs-none", 2), start_method="fork")
    torch_xla.launch(_mp_fn, args=("launch", 3))
    xmp.spawn(_mp_fn, nprocs=1, args=("nprocs-1", 4))


if __name__ == "__main__":
    main()
"""

#: One device, no launch.
ALONE = """
from shipped.training import _mp_fn


def main():
    _mp_fn(0, "alone", 5)
"""


#: Launches that cannot go on, one after the other.
DIVERGING = """
import time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def main(index, fault):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(6):
        if fault == "end" and step == 4 and index == 1:
            time.sleep(1)  # the others wait already when it leaves
            return  # line left
        optimizer.zero_grad()
        loss = model(torch.ones(4, 4).to(device)).sum()
        loss.backward()
        xm.optimizer_step(optimizer)  # line waited
        if fault == "live" and step == 4 and index == 1:
            kept.append(loss.detach().sin())  # line live
        torch_xla.sync()  # line sync


if __name__ == "__main__":
    for fault in ("live", "end"):
        try:
            xmp.spawn(main, args=(fault,), start_method="fork")
        except Exception as error:
            print(f"{fault}: {type(error).__name__}")
"""


def line(mark):
    rows = [text.endswith(f"# line {mark}") for text in DIVERGING.splitlines()]
    return rows.index(True) + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("launchers")
    package = home / "lib" / "site-packages" / "shipped"
    package.mkdir(parents=True)
    for name, text in (
        ("__init__", ""),
        ("training", TRAINING),
        ("__main__", MAIN),
        ("alone", ALONE),
    ):
        (package / f"{name}.py").write_text(text)
    script = home / "train-alone"  # as pip writes console scripts
    script.write_text(
        f"#!{sys.executable}\nimport sys\nfrom shipped.alone import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return home


def profile(folder, cores, *command):
    words = [sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(cores),
             "-o", f"run{cores}", "--output-format", "json", "--output-file", f"{cores}.json",
             "--", *command]  # fmt: skip
    base = {key: value for key, value in os.environ.items() if not key.startswith("PJRT")}
    path = os.pathsep.join([str(ROOT), str(folder / "lib" / "site-packages")])
    done = subprocess.run(
        words, env={**base, "PYTHONPATH": path}, cwd=folder, capture_output=True, text=True,
        timeout=500, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr
    ends = collections.Counter()
    for process in rundir.processes(folder / f"run{cores}"):
        for row in rundir.rows(process):
            if row["e"] == "core-end":
                assert not row["failed"]
                ends[row["steps"]] += 1
            assert row["e"] not in ("hang", "error", "divergence", "weights-diverge", "hook-off")
    return ends


def found(folder, start):
    files = folder.glob(f"{start}-[0-9]*.json")
    return {
        int(file.stem.removeprefix(f"{start}-")): json.loads(file.read_text()) for file in files
    }


@pytest.mark.slow
def test_several_launches_of_a_packages_function_by_python_m_on_16_cores(folder):
    """By alias, with ``fork``, with ``nprocs=None``, by ``torch_xla.launch`` and alone."""
    ends = profile(folder, 16, sys.executable, "-m", "shipped")
    expected = {core: [16, 16 * 17 / 2] for core in range(16)}
    for start in ("alias", "nprocs-none", "launch"):
        assert found(folder, start) == expected
    assert found(folder, "nprocs-1") == {0: [1, 1.0]}
    # How many cores ended after 1, 2, 3 and 4 steps: those of the four launches.
    assert {steps: ends[steps] for steps in (1, 2, 3, 4)} == {1: 16, 2: 16, 3: 16, 4: 1}
    # They are launches of the same cores; core 0 alone has run the last one too.
    report = json.loads((folder / "16.json").read_text())
    assert report["summary"]["cores"] == 16
    steps = {core["core"]: core["steps"] for core in report["cores"]}
    assert steps == {core: 6 + 4 * (core == 0) for core in range(16)}


def test_autograd_is_renewed_after_a_fork_by_one_thread_before_the_cores_begin(tmp_path):
    """Two cores that do so at their first ``backward()`` end the run about once in 60 times."""
    program = """
        import threading
        import torch

        renewed = []
        original = torch.autograd._is_checkpoint_valid

        def noted():
            renewed.append(threading.current_thread() is threading.main_thread())
            return original()

        torch.autograd._is_checkpoint_valid = noted

        def main(index, case):
            if renewed != [True]:
                raise RuntimeError(f"renewed by the main thread: {renewed}")
    """
    done = simulated.run_cases(tmp_path, 2, program, ["forked"])["forked"]
    assert done.code == 0, done.error


def test_a_program_on_one_device_started_by_a_console_script(folder):
    ends = profile(folder, 2, str(folder / "train-alone"))
    assert found(folder, "alone") == {0: [1, 1.0]}
    assert ends == {5: 1}
    summary = json.loads((folder / "2.json").read_text())["summary"]
    assert (summary["cores"], summary["steps"]) == (1, 5)


@pytest.mark.slow
def test_the_report_names_who_parts_and_where(tmp_path):
    """What no parameter depends on shows only when it is compiled.

    The line that differs is known if the graphs of both cores are on record, else the launch is.
    """
    (tmp_path / "train.py").write_text(DIVERGING)
    base = {key: value for key, value in os.environ.items() if not key.startswith("PJRT")}
    words = ["--simulate-cores", "3", "-o", "run", "--output-format", "json", "--output-file",
             "report.json", "--", sys.executable, "train.py"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "xladoctor", "profile", *words],
        env={**base, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
        timeout=500, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [text.partition(":")[0] for text in done.stdout.splitlines()] == ["live", "end"]
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    seen = [one for one in findings if "runtime" in one["confirmed_by"]]  # the code shows it too
    found = {one["code"]: one for one in seen if one["code"] in ("XLA410", "XLA420")}
    live, left = found["XLA410"], found["XLA420"]
    assert live["severity"] == left["severity"] == "error"
    assert live["cores"] == [1]
    assert live["locations"][0]["row"] in (line("live"), line("sync"))
    assert left["locations"][0]["row"] == line("left")  # which the linter knows
    assert line("waited") in {place["row"] for place in left["related"]}
    assert "core 1 returned after 4 steps" in left["message"]
    assert "waiting for core 1" in left["message"]
