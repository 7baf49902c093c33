"""Processes of a run that could not be watched, as what is left of them in the run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def unwatched(path: Path) -> Iterator[str]:
    """A sentence for each process that the agent did not get into, or could not start in.

    Args:
        path: The run directory.
    """
    for _, said in files.left(path, "not-reached-*.txt"):
        yield said
    for file, said in files.left(path, "not-started-*.txt"):
        pid = file.stem.rpartition("-")[2]
        why = said.rpartition("\n")[2] or "why is not known"
        yield (
            f"process {pid} imported torch_xla and could not be watched, the agent did not start: "
            f"{why}"
        )
