"""Runs programs on simulated cores, with the simulation alone: no recorder, no launcher."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from xladoctor.capture.simulate import environment

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a program on simulated cores left behind."""

    code: int
    stdout: str
    stderr: str
    events: list[tuple[str, dict[str, Any]]]
    results: dict[int, Any]

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


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
    site = Path(__file__).parent / "simulated_site"
    environ = {
        **os.environ,
        **environment(cores),
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "SIMULATED_CORES": str(cores),
        "SIMULATED_EVENTS": str(folder / "events"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    events = folder / "events"
    lines = events.read_text().splitlines() if events.exists() else []
    return Run(
        code=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        events=[tuple(json.loads(line)) for line in lines],
        results={
            int(path.stem.removeprefix("result")): json.loads(path.read_text())
            for path in folder.glob("result*.json")
        },
    )
