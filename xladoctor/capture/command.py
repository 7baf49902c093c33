"""What can be known about a command before it runs: its Python, and whether we can get into it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?$")

#: Options of Python that keep every agent out, and why.
_BLIND = {
    "I": "python -I ignores PYTHONPATH, by which xladoctor gets into the program",
    "E": "python -E ignores PYTHONPATH, by which xladoctor gets into the program",
    "S": "python -S does not run sitecustomize, by which xladoctor gets into the program",
}
#: Options of Python that take a value as the next word.
_WITH_VALUE = "WX"

_ASK = (
    "import json,sys\n"
    "from importlib import metadata\n"
    "out={}\n"
    "for name in ('torch','torch_xla','torch-tpu'):\n"
    "    try: out[name]=metadata.version(name)\n"
    "    except metadata.PackageNotFoundError: out[name]=None\n"
    "json.dump(out,sys.stdout)\n"
)

#: Modules that start one process for each core.
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")

#: How long (seconds) an interpreter may take to say which versions it has.
PATIENCE = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Versions:
    """Versions of torch and torch_xla in one Python environment; None if not installed."""

    torch: str | None
    torch_xla: str | None
    torch_tpu: str | None = None

    def problem(self) -> str | None:
        """What is wrong with them, with the remedy, as one sentence; None if nothing is."""
        if self.torch is None and self.torch_xla is None:
            return 'torch and torch_xla are not installed: pip install "xladoctor[xla]"'
        if self.torch_xla is None and self.torch_tpu is not None:
            return (
                f"torch_tpu {self.torch_tpu} is there but torch_xla is not: a program for TorchTPU "
                "is profiled as it is, on its TPU"
            )
        if self.torch_xla is None:
            release = _release(self.torch)
            return (
                f"torch {self.torch} is there but torch_xla is not: "
                f'pip install "torch_xla=={release}.*"'
            )
        release = _release(self.torch_xla)
        if self.torch is None:
            return (
                f"torch_xla {self.torch_xla} is there but torch is not: "
                f'pip install "torch=={release}.*"'
            )
        if _release(self.torch) != release:
            return (
                f"torch {self.torch} and torch_xla {self.torch_xla} do not belong together: "
                f'pip install "torch=={release}.*" "torch_xla=={release}.*"'
            )
        return None


def _release(version: str | None) -> str:
    return ".".join((version or "").split(".")[:2])


def expand(words: Sequence[str], executable: str = sys.executable) -> list[str]:
    """The command that was meant: ``train.py ...`` and ``-m package ...`` run by our own Python."""
    first = words[0]
    if first == "-m" and len(words) > 1:
        return [executable, *words]
    if first.endswith(".py") and (Path(first).is_file() or shutil.which(first) is None):
        return [executable, *words]
    return list(words)


def interpreter(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The Python that runs a command, if it can be told: itself, or a script's first line."""
    if _PYTHON.match(Path(command[0]).name):
        return shutil.which(command[0], path=environ.get("PATH"))
    found = shutil.which(command[0], path=environ.get("PATH"))
    if found is None:
        return None
    try:
        with Path(found).open("rb") as script:
            line = script.readline(300)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if words and _PYTHON.match(Path(words[0]).name):
        return shutil.which(words[0], path=environ.get("PATH"))
    return None


def versions(python: str, environ: Mapping[str, str]) -> Versions | None:
    """What a Python has installed, asked in a process of its own and without importing torch.

    Returns:
        The versions; None if that Python does not answer.
    """
    try:
        answer = subprocess.run(
            [python, "-c", _ASK],
            env=dict(environ),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=True,
        )
        found = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Versions(found.get("torch"), found.get("torch_xla"), found.get("torch-tpu"))


def missing_script(command: Sequence[str]) -> None:
    """Refuse ``python missing.py`` before anything is started.

    Raises:
        UsageError: The script that Python is to run does not exist.
    """
    if not _PYTHON.match(Path(command[0]).name):
        return
    script = next(iter(_after_options(command[1:])), None)
    if script is not None and script.endswith(".py") and not Path(script).exists():
        raise UsageError(f"cannot run {script}: there is no such file")


def _after_options(words: Sequence[str]) -> list[str]:
    """What follows Python's own options, if that is a script; empty for -c and -m."""
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            return list(words[at:])
        if word.startswith("--"):
            at += 1 if "=" in word or word != "--check-hash-based-pycs" else 2
            continue
        if "c" in word or "m" in word:
            return []
        at += 2 if word[-1] in _WITH_VALUE else 1
    return []


def starts_processes(command: Sequence[str]) -> str | None:
    """The launcher that starts a process for each core, as it is written; None if there is none."""
    name = Path(command[0]).name
    if name == "torchrun":
        return name
    if _PYTHON.match(name) and "-m" in command[:-1]:
        module = command[list(command).index("-m") + 1]
        if module in _LAUNCHERS:
            return f"python -m {module}"
    return None


def why_blind(command: Sequence[str]) -> str | None:
    """Why the agent cannot get into a command, if its words show it; a clause."""
    words = list(command)
    if Path(words[0]).name == "env":
        if any(word in ("-i", "-", "--ignore-environment") for word in words[1:]):
            return "env -i takes away the environment by which xladoctor gets into the program"
        while len(words) > 1 and (words[1].startswith("-") or "=" in words[1]):
            del words[1]
        words = words[1:]
    if not words or not _PYTHON.match(Path(words[0]).name):
        return None
    at = 1
    while at < len(words) and re.match(r"-[A-Za-z]", words[at]):
        word = words[at]
        for letter in word[1:]:
            if letter in _BLIND:
                return _BLIND[letter]
            if letter in "cm" + _WITH_VALUE:
                break
        if "c" in word or "m" in word:
            return None
        at += 2 if word[-1] in _WITH_VALUE else 1
    return None
