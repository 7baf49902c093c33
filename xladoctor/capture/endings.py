"""Ends processes that have run their last line and do not end.

What comes after a Python program's last line is C++: the runtime's clients and threads are taken
apart, and may wait for each other for ever, out of reach of any Python. The agent marks each
process whose exit handlers have run; whoever has not ended a minute later has nothing left to lose.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from xladoctor.capture.rundir import is_running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Seconds that a process may take for its end; of simulated cores it is well under one.
PATIENCE = 60.0
#: Seconds between two looks.
_EVERY = 1.0


class Endings:
    """Looks for processes of a run that do not end.

    Args:
        run_dir: Where the agent leaves its marks (``ending-<pid>.txt``).
        tell: Told, as a sentence, of each process that is ended.
    """

    def __init__(self, run_dir: Path, tell: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._tell = tell
        self._next = 0.0
        self._ended: set[int] = set()

    def look(self) -> None:
        """Look at the marks that are there now; to be called now and then."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        for mark in self._run_dir.glob("ending-*.txt"):
            pid = mark.stem.partition("-")[2]
            if not pid.isdecimal() or int(pid) in self._ended or not is_running(int(pid)):
                continue
            if time.time() - mark.stat().st_mtime > PATIENCE:
                self._end(int(pid))

    def _end(self, pid: int) -> None:
        self._ended.add(pid)
        self._tell(
            f"xladoctor: process {pid} has run its last line and did not end within "
            f"{PATIENCE:g} s; ending it"
        )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
