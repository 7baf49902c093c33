"""What was found before, so that a file is linted again only when something it depends on changed.

A key is made of the content of a file and of all files that are linted with it, of what was asked,
and of the linter itself (version, size and time of each of its files, and of plugins). So a cache
never has to be emptied by hand, and what is in it is only ever right or not there (see ``store``).
What a whole run looked at is kept too: while all of it is as it was, its results are one value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.machinery
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import __version__, catalogue
from xladoctor.findings import packed, unpacked
from xladoctor.lint.looked import Looked
from xladoctor.lint.store import BROKEN, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.asked import LintOptions
    from xladoctor.lint.contents import Facts
    from xladoctor.lint.linking import Group

    #: Names of files to what was found in them.
    Found = Mapping[str, Sequence[Finding]]

#: The file's name; another form of what is in it gets another one.
NAME = "lint-2.sqlite"
_BROKEN = (*BROKEN, KeyError, AttributeError)


class Cache:
    """Results by what they depend on.

    Args:
        folder: Where it is kept; made when there is something to keep.
        today: Number of the day, to drop what nobody asks for any more.
        secret: The user's own: what was not sealed with it is not believed.
        rules: Files of rules that are not ours.
    """

    def __init__(self, folder: Path, today: int, secret: bytes, rules: Iterable[Path] = ()) -> None:
        self._store = Store(folder / NAME, today, secret)
        self._own = _own_state()
        self._state = ""
        self._used: dict[str, None] = {}
        self.load_rules(rules)

    def load_rules(self, files: Iterable[Path]) -> None:
        """Say of which files the rules are made that are not ours."""
        stamps = [_stamp(path) for path in sorted(files)]
        self._state = hashlib.sha256("\n".join((self._own, *stamps)).encode()).hexdigest()[:32]

    def key(
        self, group: Group, digests: Mapping[str, str], options: Mapping[str, LintOptions]
    ) -> str:
        """What a result of files that are linted together depends on, as one text."""
        parts = [
            [name, digests[name], sorted(group.imports.get(name, {}).items())]
            for name in group.names
        ]
        asked = [
            [name, None if options[name].codes is None else sorted(options[name].codes or ())]
            for name in group.given
        ]
        targets = [
            [*options[name].target, options[name].library, options[name].device]
            for name in group.given
        ]
        return self._key("results", parts, asked, targets)

    def results(self, key: str) -> dict[str, tuple[Finding, ...]] | None:
        """What was found before in each file, None if that is not known."""
        self._used[key] = None
        try:
            return _unpacked(self._store.get(key))
        except _BROKEN:
            return None

    def keep_results(self, key: str, found: Found) -> None:
        """Remember what was found."""
        self._used[key] = None
        self._store.put(key, _packed(found))

    def facts(self, digest: str) -> Facts | None:
        """What linking asks of a file with this content, None if that is not known."""
        from xladoctor.lint.contents import Facts

        key = self._key("facts", digest)
        self._used[key] = None
        entry = self._store.get(key)
        try:
            if entry is None:
                return None
            modules = tuple(str(item) for item in entry["modules"])
            return Facts(bool(entry["root"]), int(entry["lines"]), modules, bool(entry["sound"]))
        except _BROKEN:
            return None

    def keep_facts(self, digest: str, facts: Facts) -> None:
        """Remember what linking asks of a file."""
        self._store.put(self._key("facts", digest), dataclasses.asdict(facts))

    def run(self, asked: Sequence[object], now: int) -> Run:
        """The run that is asked this (plain data), at a time (nanoseconds since the epoch)."""
        return Run(self._store, self._key("run", asked, os.getcwd()), now)  # noqa: PTH109

    def keep_run(self, run: Run, found: Found) -> None:
        """Remember a whole run: what it looked at, and what it found."""
        run.keep({"found": _packed(found), "uses": list(self._used)})

    def save(self) -> None:
        """Write what is new. What cannot be written is left."""
        self._store.save()

    def _key(self, *parts: object) -> str:
        text = json.dumps([self._state, *parts])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Run:
    """A whole run: what it looks at, and what is known of it from the last time.

    Attributes:
        search: What it looks at to know which files there are, and what is asked of them.
        looked: What it looks at to lint them.
        whole: Whether it may be remembered.
    """

    def __init__(self, store: Store, key: str, now: int) -> None:
        self._store, self._key = store, key
        entry = store.get(key)
        self._before: dict[str, Any] = entry if isinstance(entry, dict) else {}
        self.search = Looked(now, self._before.get("search"))
        self.looked = Looked(now, self._before.get("looked"))
        self.whole = True

    def names(self) -> list[str] | None:
        """The files that there are, if the search for them would be as the last time."""
        try:
            if not self._before or not self.search.is_unchanged():
                return None
            return list(self._before["found"])
        except _BROKEN:
            return None

    def found(self) -> dict[str, tuple[Finding, ...]] | None:
        """What was found in each file, in order, if none of them changed either."""
        try:
            if self.names() is None or not self.looked.is_unchanged():
                return None
            found = _unpacked(self._before["found"])
            self._store.use_with(self._key, self._before["uses"])
        except _BROKEN:
            return None
        if self.search.fresh or self.looked.fresh:
            self.keep(self._before)
        return found

    def keep(self, entry: Mapping[str, Any]) -> None:
        """Remember it with what it has looked at."""
        seen = {"search": self.search.seen(), "looked": self.looked.seen()}
        self._store.put(self._key, {**entry, **seen})


def _packed(found: Found) -> dict[str, list[dict[str, Any]]]:
    return {name: [packed(item) for item in items] for name, items in found.items()}


def _unpacked(entry: Any) -> dict[str, tuple[Finding, ...]] | None:
    if entry is None:
        return None
    return {
        str(name): tuple(unpacked(item) for item in findings) for name, findings in entry.items()
    }


def _own_state() -> str:
    """The linter as it is: versions, and size and time of the files that rules are made of."""
    stamps = list(_stamps_in(Path(__file__).parent, (".py",)))
    pages = catalogue.catalogue_dir()
    if isinstance(pages, Path):  # inside a zip file they are as old as the version
        stamps += _stamps_in(pages, (".md", ".toml"))
    libcst = importlib.machinery.PathFinder.find_spec("libcst")  # does not load it
    if libcst is not None and libcst.origin is not None:
        stamps.append(_stamp(Path(libcst.origin).with_name("_version.py")))
    return "\n".join((__version__, sys.version, *sorted(stamps)))


def _stamps_in(folder: Path, endings: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:  # an archive
            continue
        for entry in entries:
            if entry.name.endswith(endings):
                stat = entry.stat()
                found.append(f"{entry.path}\0{stat.st_size}\0{stat.st_mtime_ns}")
            elif entry.is_dir() and entry.name != "__pycache__":
                waiting.append(entry.path)
    return found


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}"
