"""Processes of a run that could not be watched, as what is left of them in the run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def unwatched(path: Path) -> Iterator[str]:
    """A sentence for each process that the agent did not get into, or could not start in.

    Args:
        path: The run directory.
    """
    for file in sorted(path.glob("not-reached-*.txt")):
        yield file.read_text(encoding="utf-8", errors="replace").strip()
    for file in sorted(path.glob("not-started-*.txt")):
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        pid = file.stem.rpartition("-")[2]
        yield (
            f"process {pid} imported torch_xla and could not be watched, the agent did not start: "
            f"{lines[-1] if lines else 'why is not known'}"
        )
