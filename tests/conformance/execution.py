"""Runs one of upstream's test files on simulated cores, in processes of its own.

A file goes on in a new process behind a test that ended its process or took too long, so that each
of its tests has an outcome.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
_WIDENED = Path(__file__).with_name("widened")
#: Characters of a failure that are kept.
_KEPT = 1200
#: What of it says nothing of the failure: where things are on this machine, and what xladoctor says
#: of any run.
_NOISE = (
    (re.compile(r"(?:/[\w.+@-]+)+/(?=(?:site-packages|test|xladoctor|run|lib/python[\d.]+)/)"), ""),
    (re.compile(r"(?:/[\w.+@-]+)*/conformance-\w+"), "FOLDER"),
    (re.compile(r"^xladoctor: (?:profiling|the command|the report|see it).*\n?", re.MULTILINE), ""),
)
#: What upstream's scripts print where they do nothing on this device.
_SCRIPT_SKIPS = re.compile(r".*(?:is not a TPU|skip this test|does not support replication).*")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one test ended.

    Attributes:
        test: "test/test_mp_save.py", or that and "::Class.method".
        cores: How many were simulated; 0 without xladoctor, on torch_xla's own CPU device.
        outcome: "passed", "failed", "skipped", "died" or "late".
        text: The end of what it said; "" if it passed.
        told: Codes of the errors that xladoctor reported of this run.
        plain: How it ended without xladoctor; "" if that was not tried.
    """

    test: str
    cores: int
    outcome: str
    text: str = ""
    told: tuple[str, ...] = ()
    plain: str = ""


@dataclasses.dataclass(frozen=True)
class File:
    """A file of tests.

    Attributes:
        path: Inside the checkout.
        args: What it is called with.
        environ: Variables it needs.
        one_process: Whether it drives all devices from one process (SPMD), without cores.
        widen: Whether it is told of a TPU.
        torchrun: Whether torchrun starts it, with a process for each core; one outcome for all of
            its tests.
    """

    path: str
    args: tuple[str, ...] = ()
    environ: dict[str, str] = dataclasses.field(default_factory=dict)
    one_process: bool = False
    widen: bool = True
    torchrun: bool = False


def shown(text: str) -> str:
    """The end of what a test has said, as far as it tells anything of its failure."""
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    return text.strip()[-_KEPT:]


def run(checkout: Path, file: File, cores: int, limit: float, devices: int = 0) -> list[Outcome]:
    """Run all tests of a file.

    Args:
        checkout: Of pytorch/xla.
        file: Which.
        cores: How many to simulate; 0 runs it without xladoctor.
        limit: Seconds for one test.
        devices: Of the CPU device where no cores are simulated.

    Returns:
        One outcome for a script, one for each method of a file of unit tests.
    """
    outcomes: list[Outcome] = []
    done: list[str] = []
    while True:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            process = _Process(checkout, file, cores or devices, Path(folder), simulated=cores > 0)
            ended = process.run(done, limit)
            rows = process.rows()
        told = ended.told
        begun: str | None = None
        for row in rows:
            begun = row.get("begin")
            if "end" in row:
                text = row["text"] if row["outcome"] != "passed" else ""
                name = f"{file.path}::{row['end']}"
                outcomes.append(Outcome(name, cores, row["outcome"], shown(text), told))
                done.append(row["end"])
        if begun is not None:
            outcomes.append(
                Outcome(f"{file.path}::{begun}", cores, ended.how, shown(ended.text), told)
            )
            done.append(begun)
            continue
        if not rows and not done:
            outcomes.append(_of_script(file, cores, ended))
        return outcomes


@dataclasses.dataclass(frozen=True)
class _Ended:
    how: str
    code: int
    text: str
    told: tuple[str, ...]


def _of_script(file: File, cores: int, ended: _Ended) -> Outcome:
    skips = _SCRIPT_SKIPS.search(ended.text)
    if ended.how == "late" or ended.code != 0:
        how = "late" if ended.how == "late" else "failed"
        return Outcome(file.path, cores, how, shown(ended.text), ended.told)
    if skips:
        return Outcome(file.path, cores, "skipped", shown(skips[0]), ended.told)
    return Outcome(file.path, cores, "passed", "", ended.told)


class _Process:
    """One process of a test file."""

    def __init__(
        self, checkout: Path, file: File, devices: int, folder: Path, *, simulated: bool
    ) -> None:
        self._file = file
        self._folder = folder
        self._log = folder / "tests.jsonl"
        self._report = folder / "report.json"
        path = checkout / file.path
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        started = [*launcher, str(devices)] if file.torchrun else []
        self._command = [sys.executable, *started, str(path), *file.args]
        if simulated:
            self._command = [
                sys.executable, "-m", "xladoctor", "profile", "--simulate-cores", str(devices),
                "-o", str(folder / "run"), "--output-format", "json",
                "--output-file", str(self._report), "--", *self._command,
            ]  # fmt: skip
        self._environ = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(_WIDENED), str(PROJECT), str(checkout / "test")]),
            "CONFORMANCE_LOG": str(self._log),
            "CONFORMANCE_CORES": str(devices),
            "CONFORMANCE_TESTS": os.path.realpath(checkout / "test") if file.widen else "nowhere",
            "TMPDIR": str(folder),
        }
        if not simulated:
            self._environ |= {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)}
        self._environ |= {name: value.format(folder=folder) for name, value in file.environ.items()}

    def run(self, done: list[str], limit: float) -> _Ended:
        """Let it run to its end, or until one of its tests takes longer than ``limit``."""
        out = self._folder / "out.txt"
        with out.open("wb") as sink:
            process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=sink, stderr=subprocess.STDOUT,
                env=self._environ | {"CONFORMANCE_DONE": json.dumps(done)},
                start_new_session=True,
            )  # fmt: skip
            how = "died"
            try:
                while process.poll() is None:
                    if time.time() - self._newest() > limit:
                        how = "late"
                        break
                    time.sleep(0.2)
            finally:  # also when this run is ended
                _end(process)
        text = out.read_text(errors="replace")
        return _Ended(how, process.returncode, text, self._told())

    def rows(self) -> list[dict[str, Any]]:
        """Begins and ends of its tests; a begin without an end is the last row."""
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def _newest(self) -> float:
        return (self._log if self._log.exists() else self._folder).stat().st_mtime

    def _told(self) -> tuple[str, ...]:
        try:
            report = json.loads(self._report.read_text())
        except (OSError, ValueError):
            return ()
        return tuple(
            sorted(
                {
                    found["code"]
                    for found in report["findings"]
                    if found["severity"] == "error" and "runtime" in found["confirmed_by"]
                }
            )
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all it has started; they have a session of their own."""
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
    try:
        os.killpg(process.pid, signal.SIGKILL)  # what it has left behind
    except ProcessLookupError:
        return
