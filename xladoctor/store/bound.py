"""A run directory of bounded size: rows of full files of the record are added up while it grows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.errors import UsageError
from xladoctor.readings.run import event_files
from xladoctor.store.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

#: The smallest size that a run directory can be kept below, and seconds between two looks.
LEAST, EVERY = 2**20, 10.0

#: Bytes of a file of the record: at most, and as a share of the whole.
_SEGMENT, _SHARE = 2**20, 16


class Bound:
    """Keeps a run directory below a size.

    Args:
        run_dir: The run directory.
        most: Bytes.

    Raises:
        UsageError: A run directory needs more.
    """

    def __init__(self, run_dir: Path, most: int) -> None:
        if most < LEAST:
            raise UsageError("--max-size: a run directory needs 1MiB at least")
        self._run_dir = run_dir
        self._most = most
        self._added_up: set[Path] = set()
        self._next = 0.0

    @property
    def environment(self) -> Mapping[str, str]:
        """What the agent has to know: the size of files, and how much of it graphs may take."""
        return {
            "XLADOCTOR_SEGMENT_BYTES": str(min(_SEGMENT, self._most // _SHARE)),
            "XLADOCTOR_GRAPH_BYTES": str(min(64_000_000, self._most // 4)),
        }

    def look(self, now: float) -> None:
        """Add rows up, the oldest first, until the directory is small enough.

        Args:
            now: Seconds of any clock that only goes forward.

        Raises:
            OSError: It cannot be read or written.
        """
        if now < self._next:
            return
        self._next = now + EVERY
        # What is written until the next look has room too.
        over = self._size() - self._most // 2
        full = [file for folder in self._run_dir.glob("p*/") for file in event_files(folder)[:-1]]
        for file in sorted(set(full) - self._added_up, key=lambda one: one.stat().st_mtime):
            if over <= 0:
                return
            before = file.stat().st_size
            add_up(file)
            self._added_up.add(file)
            over -= before - file.stat().st_size

    def _size(self) -> int:
        return sum(one.stat().st_size for one in self._run_dir.rglob("*") if one.is_file())


def add_up(file: Path) -> None:
    """Put the digest of a full file of the record in its place; a reader sees one or the other."""
    digest = Digest()
    beside = file.with_name(f"{file.name}.new")
    with beside.open("w", encoding="utf-8") as out:
        for line in files.lines(file):
            try:
                row = json.loads(line)
                out.writelines(_written(digest.feed(row)))
            except (ValueError, KeyError, TypeError, AttributeError):  # noqa: PERF203
                out.write(line)  # damaged: whoever reads it says so
        out.writelines(_written(digest.rest()))
    beside.replace(file)


def _written(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        # What is typical of these steps is not typical of the run.
        if row.get("e") != "typical":
            yield json.dumps(row, separators=(",", ":")) + "\n"
