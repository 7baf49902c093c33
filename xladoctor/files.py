"""Reading a file that may be anything: only regular ones, and never more than is asked for.

What a name leads to may be a pipe that nobody writes to, a device without end, or larger than any
text that people write; a program that reads them all by their names hangs or fills the memory.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import zlib
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Settings, lists of known findings and the like, in bytes.
LARGEST_SETTINGS = 16 * 2**20
#: Bytes of a graph, packed or not; the largest of real programs have some tens of megabytes.
_LARGEST_GRAPH = 128 * 2**20
#: How many times larger a graph may be than its packed form; those of real programs are 5 to 40.
_DENSEST = 200
#: What processes leave to be told: so many files of a kind, and bytes of one (a traceback).
_MOST_LEFT, _LARGEST_LEFT = 100, 2**16


def read_bytes(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file.

    Args:
        path: The file; links are followed.
        limit: How many bytes it may have at most.

    Raises:
        OSError: It cannot be opened or read, is no regular file, or is larger; ``strerror`` is a
            clause that says so. (A name with a null byte is no file either.)
    """
    with _opened(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {_size(limit)}", str(path))
    return data


def read_settings(path: str | Path) -> bytes:
    """The bytes of a regular file that people wrote; see :func:`read_bytes`.

    Raises:
        OSError: As there.
    """
    return read_bytes(path, LARGEST_SETTINGS)


def unpacked(path: str | Path) -> bytes:
    """What a file packed by zlib holds, a graph of a run.

    Raises:
        OSError: It cannot be read, is cut, or unpacks to more than a graph does (a bomb).
    """
    packed = read_bytes(path, _LARGEST_GRAPH)
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, min(_LARGEST_GRAPH, 2**20 + _DENSEST * len(packed)))
    except zlib.error as error:
        raise OSError(errno.EINVAL, f"it is damaged ({error})", str(path)) from error
    if not unpacking.eof:
        raise OSError(errno.EINVAL, "it is cut, or unpacks to more than a graph", str(path))
    return data


def lines(path: str | Path, longest: int = 4 * 2**20) -> Iterator[str]:
    """The lines of a regular file as text (UTF-8 where it is), however large it is.

    Args:
        path: The file; links are followed.
        longest: Bytes of a line; a longer one comes as an empty one.

    Raises:
        OSError: It cannot be opened or read, or is no regular file.
    """
    with _opened(path) as file:
        passing = False
        while part := file.readline(longest):
            whole = part.endswith(b"\n")
            if not passing and (whole or len(part) < longest):
                yield part.decode("utf-8", "replace")
            elif whole:
                yield "\n"
            passing = not whole


def _opened(path: str | Path) -> BinaryIO:
    try:
        # Without waiting for whoever would write into a pipe.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except ValueError as error:
        raise OSError(errno.EINVAL, f"its name cannot be one ({error})") from error
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_text(path: str | Path, limit: int = LARGEST_SETTINGS) -> str:
    """The text of a regular UTF-8 file; see :func:`read_bytes`.

    Raises:
        OSError: As there.
        UnicodeDecodeError: It is not UTF-8.
    """
    return read_bytes(path, limit).decode("utf-8")


def left(folder: Path, pattern: str) -> list[tuple[Path, str]]:
    """Small texts that processes of a run left in its folder, by name; the first hundred found.

    Args:
        folder: The run directory.
        pattern: A glob of the files.

    Returns:
        Files and their texts without white space around; of one that cannot be read, why not.
    """
    found = []
    for file in sorted(itertools.islice(folder.glob(pattern), _MOST_LEFT)):
        try:
            text = read_bytes(file, _LARGEST_LEFT).decode("utf-8", "replace").strip()
        except OSError as error:
            text = f"{file.name} cannot be read: {error.strerror}"
        found.append((file, text))
    return found


def make_ignored(folder: Path) -> None:
    """Make a folder that version control passes over; one that is there already stays as it is.

    Whoever commits the folder around it by "git add ." should not commit what is kept in it; but a
    ``.gitignore`` in a folder of the user's own would hide their files.

    Raises:
        OSError: It cannot be made.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, links followed, lies in a folder or is the folder."""
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _size(number: int) -> str:
    return f"{number // 2**20} MB" if number >= 2**20 else f"{number} bytes"


def by_start(folder: Path) -> tuple[str, str]:
    """The order in which processes started, of their folders: ``p9998-171``, ``p10001-172``.

    Process ids say nothing of it: they begin anew, and as text 10001 comes before 9998.
    """
    return folder.name.rpartition("-")[2].zfill(20), folder.name
