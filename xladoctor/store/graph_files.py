"""The graphs of a run of many hosts: the same on nearly all of them, so few are fetched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from xladoctor.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from xladoctor.readings import tables
    from xladoctor.store.locations import Location
    from xladoctor.store.parts import Part

#: Processes whose graphs are fetched whatever they are, and those with graphs that these lack.
USUAL, ODD = 8, 16


def bring(
    location: Location, every: Sequence[Part], runs: Iterable[tables.Run], folder: Path
) -> None:
    """Put the graphs that tell something beside the digests: some, and those that are unlike them.

    What cannot be fetched is left out: its graphs then count as not kept.

    Args:
        location: The run.
        every: Its parts.
        runs: What their digests say, a run a host.
        folder: Where the digests are, below the parts' names.
    """
    by_name = {part.name: part for part in every}
    known: set[str] = set()
    for at, (process, graphs) in enumerate(_chosen(runs)):
        if at >= USUAL and graphs <= known:
            continue
        known |= graphs
        name, _, inside = f"hosts/{process}".rpartition("/")
        if name in by_name:
            with contextlib.suppress(StorageError):
                _fetch(location, by_name[name], inside, folder)


def _chosen(runs: Iterable[tables.Run]) -> list[tuple[str, frozenset[str]]]:
    """Processes and the hashes of the graphs that they kept: the first, then those with others."""
    kept: dict[str, set[str]] = {}
    for run in runs:
        for row in run.compilations:
            if row.hlo is not None:
                kept.setdefault(row.process, set()).add(row.graph or "")
    usual = list(kept.items())[:USUAL]
    known = set().union(*(graphs for _, graphs in usual))
    odd = [(process, graphs) for process, graphs in kept.items() if not graphs <= known][:ODD]
    return [(process, frozenset(graphs)) for process, graphs in (*usual, *odd)]


def _fetch(location: Location, part: Part, process: str, folder: Path) -> None:
    names = [f"{part.name}/{name}" for name in part.files if name.startswith(f"{process}/graphs/")]
    top = location.local(names, folder)
    target = folder / part.name / process / "graphs"
    source = top / part.name / process / "graphs"
    if source.is_dir() and source != target and target.parent.is_dir():
        target.symlink_to(source.resolve())  # they are on this machine
