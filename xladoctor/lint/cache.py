"""What was found before, so that a file is linted again only when something it depends on changed.

A key is made of the content of a file and of all files that are linted with it, of what was asked,
and of the linter itself (version, size and time of each of its files, and of plugins). So a cache
never has to be emptied by hand, and what is in it is only ever right or not there (see ``store``).
What a whole run looked at is kept too (see ``kept_run``).
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
from xladoctor.lint.kept_run import Run, packed_found, unpacked_found
from xladoctor.lint.store import BROKEN, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.asked import LintOptions
    from xladoctor.lint.contents import Facts
    from xladoctor.lint.kept_run import Found
    from xladoctor.lint.linking import Group

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
            [
                *options[name].target,
                options[name].library,
                options[name].device,
                *dataclasses.astuple(options[name].started),
            ]
            for name in group.given
        ]
        pins = [[*map(dataclasses.astuple, options[name].pins)] for name in group.given]
        return self._key("results", parts, asked, targets, pins)

    def results(self, key: str) -> dict[str, tuple[Finding, ...]] | None:
        """What was found before in each file, None if that is not known."""
        self._used[key] = None
        try:
            return unpacked_found(self._store.get(key))
        except _BROKEN:
            return None

    def keep_results(self, key: str, found: Found) -> None:
        """Remember what was found."""
        self._used[key] = None
        self._store.put(key, packed_found(found))

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
            root, script = bool(entry["root"]), bool(entry["script"])
            return Facts(root, int(entry["lines"]), modules, script)
        except _BROKEN:
            return None

    def keep_facts(self, digest: str, facts: Facts) -> None:
        """Remember what linking asks of a file."""
        self._store.put(self._key("facts", digest), dataclasses.asdict(facts))

    def table(self, name: str) -> Any | None:
        """A table of facts as it was parsed before, None if that is not known."""
        return self._store.get(self._key("table", name))

    def keep_table(self, name: str, table: object) -> None:
        """Remember a table of facts."""
        self._store.put(self._key("table", name), table)

    def run(self, asked: Sequence[object], now: int) -> Run:
        """The run that is asked this (plain data), at a time (nanoseconds since the epoch)."""
        return Run(self._store, self._key("run", asked, os.getcwd()), now)  # noqa: PTH109

    def keep_run(self, run: Run, found: Found, groups: Sequence[tuple[Group, str]]) -> None:
        """Remember a whole run: what it looked at, and what it found.

        Args:
            run: The run.
            found: What was found in each file.
            groups: What was linted together, and the keys of what was found in it.
        """
        stale = [self._key("facts", digest) for digest in run.edited.values()]
        run.keep(found, groups, self._used, stale)

    def save(self) -> None:
        """Write what is new. What cannot be written is left."""
        self._store.save()

    def _key(self, *parts: object) -> str:
        text = json.dumps([self._state, *parts])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


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
