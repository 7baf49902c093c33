"""Writes one process's folder of the run directory; what is written survives any death.

Rows go out with one ``os.write`` each to a file opened for appending, so a killed process loses
at most the row it was writing, and the rows of short steps that were held back for a moment
(:meth:`Writer.hold`). A failing disk ends the writing, never the program.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VERSION = 1

#: If the record is to stay small: bytes after which it goes on in another file. The launcher adds
#: up the rows of those that are full.
SEGMENT = "XLADOCTOR_SEGMENT_BYTES"

#: Seconds for which rows of short steps are held back. Making a row between two steps of 1 ms finds
#: cold caches each time, and takes four times as long as making many at once.
HOLD_SECONDS = 0.05

#: Characters of a row beyond which its texts are cut, and what is left of a long text then.
LONGEST_ROW, LONGEST_TEXT = 100_000, 8_000

#: json.dumps with these separators would make an encoder for each row.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Writer:
    """The files of one process; created when the first row comes.

    Args:
        run_dir: The run directory, absolute.
    """

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._stacks: int | None = None
        self._broken = False
        self._held: list[Callable[[], dict[str, Any]]] = []
        self._held_since = 0.0
        self._segment = int(os.environ.get(SEGMENT) or 0)
        self._number = self._written = 0
        self.folder: str | None = None

    @property
    def working(self) -> bool:
        """Whether rows are being written: something came, and the disk takes it."""
        return self._fd is not None and not self._broken

    def start_over(self) -> None:
        """Forget the parent's files after a fork; the descriptor stays the parent's."""
        fd, self._fd, self.folder = self._fd, None, None
        self._number = self._written = 0
        self._held = []
        self._lock = threading.Lock()
        if fd is not None:
            os.close(fd)

    def row(self, row: dict[str, Any]) -> None:
        """Append one row; it is on its way to the disk when this returns."""
        self.rows((row,))

    def hold(self, make: Callable[[], dict[str, Any]], now: float) -> None:
        """Append a row a little later, at the latest before any other row.

        Args:
            make: Makes the row.
            now: The time (``time.monotonic``).
        """
        with self._lock:
            if not self._held:
                self._held_since = now
            self._held.append(make)
            due = now - self._held_since > HOLD_SECONDS
        if due:
            self.rows(())

    def rows(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append several rows with one write."""
        if self._broken:
            return
        try:
            with self._lock:
                held, self._held = self._held, []
            rows = [*[make() for make in held], *rows]
            text = "".join([_line(row) for row in rows])
            data = text.encode("ascii")  # JSON escapes whatever is not
            with self._lock:
                if self._fd is None:
                    self._open()
                self._write(data)
        except OSError:
            # A full or vanished disk: measuring ends here, the program goes on. The reader sees
            # that no end row came.
            self._broken = True

    def replace(self, name: str, text: str) -> None:
        """Write a whole file of this process's folder, so that a reader never sees half of it."""
        if not self.working or self.folder is None:
            return
        path = os.path.join(self.folder, name)
        try:
            with open(path + ".new", "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
            os.replace(path + ".new", path)
        except OSError:
            pass

    def mark(self, what: str) -> None:
        """Leave an empty file for the launcher, named after this process."""
        with contextlib.suppress(OSError):
            path = f"{self._run_dir}/{what}-{os.getpid()}.txt"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def keep(self, name: str, content: bytes) -> bool:
        """Write a file of this process's folder that will not change; says whether it is there."""
        if not self.working or self.folder is None:
            return False
        path = os.path.join(self.folder, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(content)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            return False
        return True

    def _write(self, data: bytes) -> None:
        assert self._fd is not None
        if self._segment and self._written + len(data) > self._segment and self._written:
            self._go_on()
        self._written += len(data)
        while data:
            data = data[os.write(self._fd, data) :]

    def _go_on(self) -> None:
        """Write what follows into another file; the one so far is full."""
        assert self._fd is not None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        name = f"{self.folder}/events.{self._number + 1:05d}.jsonl"
        before, self._fd = self._fd, os.open(name, flags, 0o644)
        os.close(before)
        self._number, self._written = self._number + 1, 0

    def _open(self) -> None:
        self.folder = f"{self._run_dir}/p{os.getpid()}-{time.time_ns() // 1_000_000}"
        os.makedirs(self.folder, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(f"{self.folder}/events.jsonl", flags, 0o644)
        self._catch_fatal_signals()

    def _catch_fatal_signals(self) -> None:
        """Have the stacks of all threads written when the runtime aborts, unless the user has."""
        if faulthandler.is_enabled() and self._stacks is None:
            return
        # A bare descriptor: a file object would warn at the program's end that nobody closed it.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._stacks = os.open(f"{self.folder}/stacks.txt", flags, 0o644)
            faulthandler.enable(self._stacks, all_threads=True)


def _line(row: dict[str, Any]) -> str:
    text = _encode(row)
    return (text if len(text) <= LONGEST_ROW else _encode(_shortened(row))) + "\n"


def _shortened(value: Any) -> Any:
    """A row whose long texts have lost their middle: messages of megabytes are somebody's data."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        half = LONGEST_TEXT // 2
        left = len(value) - 2 * half
        return f"{value[:half]} [... {left} characters left out ...] {value[-half:]}"
    if isinstance(value, dict):
        return {_shortened(key): _shortened(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(item) for item in value]
    return value
