"""What a parent knows of a process that a signal has ended; nobody else knows which signal."""

from __future__ import annotations

import contextlib
import os
from typing import Any


def see_deaths(run_dir: str) -> None:
    """Have children of multiprocessing told that a signal ends.

    Those of ``subprocess`` are seen by the bootstrap: torchrun, which starts its workers so, never
    imports torch_xla itself.

    Args:
        run_dir: The run directory.
    """
    from multiprocessing.popen_fork import Popen

    poll = Popen.poll

    def told(self: Any, *args: Any, **options: Any) -> int | None:
        code: int | None = poll(self, *args, **options)
        if code is not None and code < 0:
            with contextlib.suppress(Exception):
                tell(run_dir, self.pid, -code)
        return code

    Popen.poll = told  # type: ignore[method-assign]


def tell(run_dir: str, process: int, signal: int) -> None:
    """Write ``died-<pid>.txt`` for a process that is part of the run; once.

    Args:
        run_dir: The run directory.
        process: The process's id.
        signal: What has ended it.

    Raises:
        OSError: The run directory cannot be read or written.
    """
    name = f"{run_dir}/died-{process}.txt"
    recorded = any(entry.startswith(f"p{process}-") for entry in os.listdir(run_dir))
    if recorded and not os.path.exists(name):
        with open(name, "w", encoding="ascii") as file:
            file.write(f"{signal}\n")
