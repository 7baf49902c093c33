"""A small store on the disk: values by keys, each sealed with a secret of the user's.

One SQLite file, so that a run reads only what it asks for, writes only what is new, and several
may do so at once. A store is never needed and never trusted: one that cannot be used is made anew,
and a value that was not sealed for its key with the user's secret is none. Values are JSON.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.files import make_ignored

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Values that no run asked for in so many days are dropped.
DAYS = 30
#: Bytes of a store; a larger one is made anew.
_LARGEST = 256 * 2**20
#: Seconds to wait for another run that is writing; then nothing is kept this time.
_PATIENCE = 2.0
#: What SQLite puts beside its file.
_BESIDE = ("", "-journal", "-wal", "-shm")
_TABLE = (
    "CREATE TABLE entries (key TEXT PRIMARY KEY, day INTEGER NOT NULL, seal BLOB NOT NULL, "
    "value BLOB NOT NULL) WITHOUT ROWID"
)
#: What a damaged or foreign store raises.
BROKEN = (OSError, sqlite3.Error, ValueError, TypeError, RecursionError)


class Store:
    """Values by keys.

    Args:
        path: The file; its folder is made when there is something to keep.
        today: Number of the day, to drop what nobody asks for any more.
        secret: The user's own.
    """

    def __init__(self, path: Path, today: int, secret: bytes) -> None:
        self._path = path
        self._today = today
        self._secret = secret
        self._new: dict[str, bytes] = {}
        self._used: dict[str, None] = {}
        self._opened: sqlite3.Connection | None = None
        if os.path.lexists(path):
            self._opened = self._open()

    def get(self, key: str) -> Any | None:
        """The value of a key, None if there is none."""
        if key in self._new:
            return json.loads(self._new[key])
        if self._opened is None:
            return None
        try:
            row = self._opened.execute(
                "SELECT day, seal, value FROM entries WHERE key = ?", (key,)
            ).fetchone()
            if row is None:
                return None
            day, seal, text = row
            if not hmac.compare_digest(bytes(seal), self._seal(key, bytes(text))):
                return None
            value = json.loads(text)
        except BROKEN:
            return None
        if day != self._today:
            self._used[key] = None
        return value

    def put(self, key: str, value: object) -> None:
        """Remember a value; it is written by :meth:`save`."""
        self._new[key] = json.dumps(value, separators=(",", ":")).encode()

    def use_with(self, key: str, others: Iterable[str]) -> None:
        """Keep values as long as one that was read, which stands for them."""
        if key in self._used:  # once a day
            self._used.update(dict.fromkeys(map(str, others)))

    def save(self) -> None:
        """Write what is new; what cannot be written is left."""
        if not self._new and not self._used:
            return
        for _ in range(2):
            with contextlib.suppress(*BROKEN):
                if self._opened is None:
                    make_ignored(self._path.parent)
                    self._opened = self._open(make=True)
                if self._opened is None or self._write(self._opened):
                    break
        self._new.clear()
        self._used.clear()

    def close(self) -> None:
        """Let go of the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _write(self, opened: sqlite3.Connection) -> bool:
        """Whether it was written, or cannot be; a damaged store is removed."""
        rows = [(key, self._today, self._seal(key, text), text) for key, text in self._new.items()]
        used = [(self._today, key) for key in self._used]
        try:
            with opened:
                opened.execute("BEGIN IMMEDIATE")
                opened.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
                opened.executemany("UPDATE entries SET day = ? WHERE key = ?", used)
                opened.execute(
                    "DELETE FROM entries WHERE day <= ? OR day > ?",
                    (self._today - DAYS, self._today),
                )
        except sqlite3.Error as error:
            if not _is_busy(error):
                self.close()
                self._remove()
                return False
        return True

    def _seal(self, key: str, text: bytes) -> bytes:
        return hmac.digest(self._secret, key.encode() + b"\0" + text, "sha256")

    def _open(self, *, make: bool = False) -> sqlite3.Connection | None:
        """The file if it is as we make it; one that is not is removed, and made if wanted."""
        for _ in range(2):
            try:
                self._check_files()
                opened = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            except BROKEN:
                return None
            try:
                if _is_ours(opened, make=make):
                    return opened
            except sqlite3.Error as error:
                if _is_busy(error):
                    opened.close()
                    return None
            opened.close()
            self._remove()
            if not make:
                return None
        return None

    def _check_files(self) -> None:
        """Remove what stands in the place of our files: links, pipes, what is far too large.

        Raises:
            OSError: It cannot be removed.
        """
        for ending in _BESIDE:
            name = f"{self._path}{ending}"
            try:
                found = os.lstat(name)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
                os.unlink(name)  # noqa: PTH108

    def _remove(self) -> None:
        for ending in _BESIDE:
            with contextlib.suppress(OSError):
                Path(f"{self._path}{ending}").unlink()


def _is_ours(opened: sqlite3.Connection, *, make: bool) -> bool:
    """Whether a file holds our table and nothing else; an empty one gets it, if wanted."""
    # Nothing that a foreign file defines is run: no views, triggers or functions of it.
    opened.execute("PRAGMA trusted_schema = OFF")
    opened.execute("PRAGMA cell_size_check = ON")
    # A crash of the machine may damage the file: then it is made anew.
    opened.execute("PRAGMA synchronous = OFF")
    defined = opened.execute("SELECT sql FROM sqlite_master").fetchall()
    if not defined and make:
        opened.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        defined = opened.execute("SELECT sql FROM sqlite_master").fetchall()
    return defined == [(_TABLE,)]


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether another run is using the file, and nothing is wrong with it."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
