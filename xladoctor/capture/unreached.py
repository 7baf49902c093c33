"""Finds processes of the command that use torch_xla without the agent, for the report to say so.

The agent gets into a Python through its environment. ``env -i``, ``python -I`` or an ``env=`` of
the program's own keep it out, and then nobody inside can tell. From outside Linux can: ``/proc``
shows each process's words, environment and loaded libraries. Elsewhere nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.capture.command import why_blind
from xladoctor.capture.masking import masked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: torch_xla's extension module, as its name stands in ``/proc/<pid>/maps``.
_EXTENSION = b"_XLAC"

#: How much of a command is shown.
_WIDTH = 200


class Watch:
    """Looks at the processes that a command has started.

    Args:
        run_dir: Where what was found is written, as ``not-reached-<pid>.txt``.
        bootstrap: The folder that must stand in ``PYTHONPATH`` for the agent to get in.
        proc: The system's table of processes.
    """

    def __init__(self, run_dir: Path, bootstrap: Path, proc: Path = Path("/proc")) -> None:
        self._run_dir = run_dir
        self._bootstrap = str(bootstrap)
        self._proc = proc
        self._seen: set[int] = set()
        self._family: dict[int, tuple[str, ...]] = {}  # pid -> the words that were judged
        self._group: int | None = None

    def started(self, pid: int, *, own_group: bool) -> None:
        """The command runs; with ``own_group`` its whole process group belongs to it."""
        self._family[pid] = ()
        self._group = pid if own_group else None

    def look(self) -> None:
        """Look at the processes that are there now; some milliseconds, to be called each second."""
        with contextlib.suppress(OSError):
            here = {int(entry) for entry in os.listdir(self._proc) if entry.isdigit()}  # noqa: PTH208
            for pid in sorted(here - self._seen):
                if self._belongs(pid):
                    self._family.setdefault(pid, ())
            self._seen = here
            for pid in [pid for pid in self._family if pid in here]:
                with contextlib.suppress(OSError):
                    self._judge(pid)

    def _belongs(self, pid: int) -> bool:
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
            # The name in brackets may hold anything; parent and group stand behind it.
            _, parent, group = stat.rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            return False
        return int(parent) in self._family or int(group) == self._group

    def _judge(self, pid: int) -> None:
        folder = self._proc / str(pid)
        words = tuple(_texts(folder / "cmdline"))
        if not words or words == self._family[pid]:
            return
        entries = (entry.partition("=") for entry in _texts(folder / "environ"))
        why = why_unreached(words, {key: value for key, _, value in entries}, self._bootstrap)
        if why is not None:
            if _EXTENSION not in (folder / "maps").read_bytes():
                return  # it may come yet
            self._tell(pid, words, why)
        self._family[pid] = words

    def _tell(self, pid: int, words: Sequence[str], why: str) -> None:
        shown = shlex.join(masked(words))
        shown = shown if len(shown) <= _WIDTH else shown[: _WIDTH - 3] + "..."
        (self._run_dir / f"not-reached-{pid}.txt").write_text(
            f"process {pid} used torch_xla and could not be watched: {why} ({shown})\n",
            encoding="utf-8",
        )


def why_unreached(words: Sequence[str], environ: Mapping[str, str], bootstrap: str) -> str | None:
    """Why the agent cannot be in a process; None if it can.

    Args:
        words: The process's command line.
        environ: The environment that it was started with.
        bootstrap: The folder that must stand in ``PYTHONPATH``.
    """
    if "XLADOCTOR_RUN_DIR" not in environ:
        return (
            "it was started with an environment of its own (env -i, or env= of the program), and "
            "xladoctor gets in through the environment"
        )
    if bootstrap not in environ.get("PYTHONPATH", "").split(os.pathsep):
        return "its PYTHONPATH was replaced, by which xladoctor gets into the program"
    return why_blind(words)


def _texts(path: Path) -> list[str]:
    return [os.fsdecode(part) for part in path.read_bytes().split(b"\0") if part]
