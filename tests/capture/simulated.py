"""Runs programs on simulated cores, with the simulation alone: no recorder, no launcher.

To import torch_xla takes most of the time of a small program. So a program may be given several
cases: each is a launch of its own, in a process that is forked from one that has imported all.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.capture.simulate import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a program on simulated cores left behind."""

    code: int
    stdout: str
    stderr: str
    events: list[tuple[str, dict[str, Any]]]
    results: dict[int, Any]
    error: str | None = None

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


#: Runs ``main(index, case)`` for each case, in a folder of its own; a program may have a ``start``
#: that launches it in another way.
_CASES = """

if __name__ == "__main__":
    import json, os, sys
    import torch_xla.distributed.xla_multiprocessing as xmp

    def fork(case):
        xmp.spawn(main, args=(case,), start_method="fork")

    home = os.getcwd()
    launch = globals().get("start", fork)
    for case in sys.argv[1:]:
        os.makedirs(os.path.join(home, case))
        os.chdir(os.path.join(home, case))
        os.environ["SIMULATED_CASE"] = os.getcwd()
        os.environ["SIMULATED_EVENTS"] = os.path.abspath("events")
        for number, name in ((1, "stdout"), (2, "stderr")):
            sys.stdout.flush()
            sys.stderr.flush()
            file = os.open(name, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
            os.close(file)
        code, error = 0, None
        try:
            launch(case)
        except BaseException as caught:
            code, error = 1, f"{type(caught).__name__}: {caught}"
        with open("ended", "w") as file:
            json.dump([code, error], file)
"""


def run_cases(
    folder: Path, cores: int, source: str, cases: Sequence[str], *, timeout: float = 400
) -> dict[str, Run]:
    """Run ``main(index, case)`` of a program once for each case, in one process after the other.

    Args:
        folder: An empty folder to run in.
        cores: Number of simulated cores.
        source: The program, without its start.
        cases: Names; each also names the folder in which the case runs.
        timeout: Seconds for all of them.

    Returns:
        Case to what it left behind; ``code`` is 1 if the launch has raised ``error``.
    """
    done = run(folder, cores, textwrap.dedent(source) + _CASES, *cases, timeout=timeout)
    assert done.code == 0, done.stderr
    return {case: _left(folder / case, *_ended(folder / case)) for case in cases}


def run_cases_on_hosts(
    folder: Path, hosts: int, cores: int, source: str, cases: Sequence[str], *, timeout: float = 500
) -> dict[str, Run]:
    """The same on several hosts, each a process of its own that torchrun has started.

    Args:
        folder: An empty folder; each host runs in a folder of its own in it.
        hosts: How many.
        cores: Simulated cores of each.
        source: The program, without its start.
        cases: As for :func:`run_cases`.
        timeout: Seconds for all of them.

    Returns:
        Case to what all hosts left behind.
    """
    port = str(_free_port())
    homes = [folder / f"host{number}" for number in range(hosts)]
    started = []
    for number, home in enumerate(homes):
        home.mkdir(parents=True)
        program = home / "program.py"
        program.write_text(textwrap.dedent(source) + _CASES)
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
        command += [f"--nnodes={hosts}", f"--node-rank={number}", "--nproc-per-node=1"]
        command += ["--master-addr=127.0.0.1", f"--master-port={port}", "program.py", *cases]
        environ = _environ(home, cores) | {"SIMULATED_HOST": "1"}
        log = (home / "log").open("w")
        started.append(
            subprocess.Popen(command, cwd=home, env=environ, stdout=log, stderr=subprocess.STDOUT)
        )
        log.close()
    try:
        for one in started:
            one.wait(timeout)
    finally:
        for one in started:
            one.kill()
    for one, home in zip(started, homes, strict=True):
        assert one.returncode == 0, (home / "log").read_text()
    return {case: _together([_left(home / case, *_ended(home / case)) for home in homes])
            for case in cases}  # fmt: skip


def _together(parts: Sequence[Run]) -> Run:
    return Run(
        max(part.code for part in parts),
        "".join(part.stdout for part in parts),
        "".join(part.stderr for part in parts),
        [event for part in parts for event in part.events],
        {core: found for part in parts for core, found in part.results.items()},
        next((part.error for part in parts if part.error is not None), None),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def _ended(folder: Path) -> tuple[int, str | None]:
    return tuple(json.loads((folder / "ended").read_text()))


def _left(folder: Path, code: int, error: str | None) -> Run:
    return Run(
        code,
        (folder / "stdout").read_text(),
        (folder / "stderr").read_text(),
        _events(folder),
        _results(folder),
        error,
    )


def _events(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    events = folder / "events"
    lines = events.read_text().splitlines() if events.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def _results(folder: Path) -> dict[int, Any]:
    # A core that was ended while it wrote leaves an empty file.
    return {
        int(path.stem.removeprefix("result")): json.loads(path.read_text())
        for path in folder.glob("result*.json")
        if path.stat().st_size
    }


def run(folder: Path, cores: int, source: str, *arguments: str, timeout: float = 300) -> Run:
    """Run a program; its cores may put what they found out into ``result<core>.json``.

    Args:
        folder: An empty folder to run in.
        cores: Number of simulated cores.
        source: The program.
        arguments: For the program.
        timeout: Seconds; a simulation that hangs fails the test here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program.py"
    program.write_text(textwrap.dedent(source))
    environ = _environ(folder, cores)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, _events(folder), _results(folder))


def _environ(folder: Path, cores: int) -> dict[str, str]:
    site = Path(__file__).parent / "simulated_site"
    return {
        **os.environ,
        **environment(cores),
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "SIMULATED_CORES": str(cores),
        # torch_xla's own choice is one port for the whole machine
        "MASTER_PORT": str(_free_port()),
        "SIMULATED_EVENTS": str(folder / "events"),
    }
