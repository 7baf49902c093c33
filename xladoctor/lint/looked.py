"""What a run looked at on the disk, so that the next one can tell whether all is as it was.

Of each file and folder: its stamp (kind, size, times, number on the disk) and a digest of what it
held. Where the stamp is as it was, nothing is read. A file that changed shortly before the run has
no stamp: on coarse clocks another change might leave the same one, so it is read again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import TYPE_CHECKING, Any, TypeAlias

from xladoctor import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

#: Nanoseconds between two times that a file system may write as the same.
COARSEST = 2_000_000_000
#: Stands for the digest of what is there and was not looked into.
_THERE = "there"
#: Bytes of a Python file, and of the code in a notebook: beyond them it is data, and minutes go by.
LARGEST = 2 * 2**20
#: Bytes of a notebook: with its images.
_LARGEST_NOTEBOOK = 128 * 2**20


def load(path: str | Path) -> bytes:
    """The bytes of a file to lint.

    Raises:
        OSError: It cannot be read, is no regular file, or is too large to be code of people.
    """
    notebook = os.fspath(path).endswith(".ipynb")
    return files.read_bytes(path, _LARGEST_NOTEBOOK if notebook else LARGEST)


def digest_of(name: str, data: bytes) -> str:
    """A digest of a file's bytes, which also tells notebooks from Python."""
    ending = os.path.splitext(name)[1]  # noqa: PTH122
    return hashlib.sha256(ending.encode() + b"\0" + data).hexdigest()[:32]


def stamp_of(path: str | Path) -> list[int] | None:
    """What tells that a file or folder was not changed, without reading it; None if not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return [found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


#: Of a file or folder: its stamp, None where that says too little; a digest, None if not there.
_Seen: TypeAlias = "tuple[list[int] | None, str | None]"


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """What became of all that a run looked at, where no file or folder came or went.

    Attributes:
        edited: Files that hold something else now, to the digests of what they held.
        files: All others, as they are.
        folders: The folders, as they are.
        fresh: Whether there are stamps that are not those of the run before.
    """

    edited: Mapping[str, str]
    files: Mapping[str, _Seen]
    folders: Mapping[str, _Seen]
    fresh: bool


class Looked:
    """What is looked at in this run, and what the run before saw there.

    Args:
        now: The time (nanoseconds since the epoch).
        before: What :meth:`seen` of an earlier run was.
    """

    def __init__(self, now: int, before: Mapping[str, Any] | None = None) -> None:
        self._settled = now - COARSEST
        self._before = before or {}
        self._files: dict[str, _Seen] = {}
        self._folders: dict[str, _Seen] = {}

    def entries(self, folder: str | Path) -> list[os.DirEntry[str]]:
        """What stands in a folder.

        Raises:
            OSError: It cannot be looked into.
        """
        path, stamp = os.fspath(folder), stamp_of(folder)
        self._folders[path] = (None, None)
        found = list(os.scandir(path))
        self._folders[path] = (self._sure(stamp), _listing(found))
        return found

    def exists(self, path: str | Path) -> bool:
        """Whether a file or folder is there, whatever it holds."""
        there = os.path.lexists(path)
        self._files.setdefault(os.fspath(path), (None, _THERE if there else None))
        return there

    def read(self, path: str | Path, reading: Callable[[str | Path], bytes] = load) -> bytes:
        """The bytes of a file.

        Raises:
            OSError: It cannot be read.
        """
        name, stamp = os.fspath(path), stamp_of(path)
        self._files[name] = (None, None)
        data = reading(path)
        self._files[name] = (self._sure(stamp), digest_of(name, data))
        return data

    def digest(self, name: str) -> str | None:
        """The digest of a file that is as it was in the run before; None if it has to be read."""
        if name not in self._files:
            stamp, digest = self._before.get("files", {}).get(name, (None, None))
            if stamp is None or digest is None or stamp != stamp_of(name):
                return None
            self._files[name] = (stamp, digest)
        return self._files[name][1]

    def seen(self) -> dict[str, Any]:
        """All that was looked at, as plain data."""
        return {"files": self._files, "folders": self._folders}

    def changes(self) -> Changes | None:
        """What became of all that the run before looked at; None if something came or went."""
        files, edited, fresh = self._again("files", self._file_now)
        if any(
            digest in {None, _THERE} or now in {None, _THERE} for digest, now in edited.values()
        ):
            return None
        folders, other, newer = self._again("folders", self._folder_now)
        if other:
            return None
        before = {name: digest for name, (digest, _) in edited.items() if digest is not None}
        return Changes(before, files, folders, fresh or newer)

    def take(self, changes: Changes) -> None:
        """Let what is as it was count as looked at, also where this run has no need to look."""
        self._files.update(changes.files)
        self._folders.update(changes.folders)

    def _again(
        self, kind: str, look: Callable[[str], str | None]
    ) -> tuple[dict[str, _Seen], dict[str, tuple[str | None, str | None]], bool]:
        """What is as it was, what is not with its digests (before, now), and if stamps are new."""
        found: dict[str, _Seen] = {}
        differing: dict[str, tuple[str | None, str | None]] = {}
        fresh = False
        for path, (stamp, digest) in self._before[kind].items():
            now = stamp_of(path) if digest != _THERE else None
            if (stamp is None and digest is not None) or stamp != now:
                seen = look(path)
                if seen != digest:
                    differing[path] = (digest, seen)
                    continue
                stamp, before = self._sure(now), stamp
                fresh = fresh or stamp != before
            found[path] = (stamp, digest)
        return found, differing, fresh

    def _file_now(self, path: str) -> str | None:
        if self._before["files"][path][1] == _THERE:
            return _THERE if os.path.lexists(path) else None
        try:
            return digest_of(path, load(path))
        except OSError:
            return None

    def _folder_now(self, path: str) -> str | None:
        try:
            return _listing(os.scandir(path))
        except (OSError, ValueError):
            return None

    def _sure(self, stamp: list[int] | None) -> list[int] | None:
        return stamp if stamp is not None and max(stamp[2:4]) < self._settled else None


def _listing(entries: Iterable[os.DirEntry[str]]) -> str:
    names = sorted(f"{item.name}\0{_is_folder(item)}" for item in entries)
    text = "\0".join(names).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:
        return False  # a link to itself
