"""What was found before, for files that did not change since.

One JSON file for a version of the linter and its rules. A result is kept under the content of all
files that were linted together, their names, and what was asked of each: where one of these is
another, it is found anew. Nothing here is trusted: what cannot be read is as good as not there, and
so is what was not sealed with the user's own secret (it may have come with a clone, to hide what
would be found).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import __version__, catalogue
from xladoctor.files import make_ignored, read_bytes
from xladoctor.findings import packed, unpacked
from xladoctor.lint.contents import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.asked import LintOptions
    from xladoctor.lint.linking import Group

    #: Names of files to what was found in them.
    Found = Mapping[str, Sequence[Finding]]

#: Entries that no run asked for in so many days are dropped.
_DAYS = 30
#: Bytes of a cache; a larger one is not worth its reading.
_LARGEST = 256 * 2**20
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Cache:
    """Results by what they depend on.

    Args:
        folder: Where it is kept; made when there is something to keep.
        today: Number of the day, to drop what nobody asks for any more.
        secret: The user's own: entries count only in a file that was sealed with it.
        rules: Files of rules that are not ours.
    """

    def __init__(self, folder: Path, today: int, secret: bytes, rules: Iterable[Path] = ()) -> None:
        self._secret = secret
        self._folder = folder
        self._today = today
        self._path = folder / f"lint-{_state(rules)}.json"
        self._changed = False
        self._results: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(*_BROKEN):
            seal, _, text = read_bytes(self._path, _LARGEST).partition(b"\n")
            if not hmac.compare_digest(seal, self._seal(text)):
                raise ValueError("sealed by somebody else")
            document = json.loads(text)
            results, facts = document["results"], document["facts"]
            self._results = {str(key): dict(value) for key, value in results.items()}
            self._facts = {str(key): dict(value) for key, value in facts.items()}

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
        return hashlib.sha256(json.dumps([parts, asked, targets]).encode()).hexdigest()[:32]

    def results(self, key: str) -> dict[str, tuple[Finding, ...]] | None:
        """What was found before in each file, None if that is not known."""
        entry = self._results.get(key)
        if entry is None:
            return None
        try:
            found = {
                str(name): tuple(unpacked(item) for item in findings)
                for name, findings in entry["found"].items()
            }
            self._use(entry)
        except _BROKEN:
            return None
        return found

    def keep_results(self, key: str, found: Found) -> None:
        """Remember what was found."""
        kept = {name: [packed(item) for item in items] for name, items in found.items()}
        self._results[key] = {"day": self._today, "found": kept}
        self._changed = True

    def facts(self, digest: str) -> Facts | None:
        """What linking asks of a file with this content, None if that is not known."""
        entry = self._facts.get(digest)
        try:
            if entry is None:
                return None
            self._use(entry)
            modules = tuple(str(item) for item in entry["modules"])
            sound = bool(entry["sound"])
            return Facts(bool(entry["root"]), int(entry["lines"]), modules, sound)
        except _BROKEN:
            return None

    def keep_facts(self, digest: str, facts: Facts) -> None:
        """Remember what linking asks of a file."""
        self._facts[digest] = {"day": self._today, **dataclasses.asdict(facts)}
        self._changed = True

    def _use(self, entry: dict[str, Any]) -> None:
        if entry["day"] != self._today:
            entry["day"] = self._today
            self._changed = True

    def save(self) -> None:
        """Write what is new: beside the old file, then renamed. What cannot be written is left."""
        if not self._changed:
            return
        document = {
            "results": self._young(self._results),
            "facts": self._young(self._facts),
        }
        with contextlib.suppress(OSError):
            make_ignored(self._folder)
            text = json.dumps(document, separators=(",", ":")).encode()
            _replace(self._path, self._seal(text) + b"\n" + text)
            self._changed = False

    def _seal(self, text: bytes) -> bytes:
        return hmac.new(self._secret, text, "sha256").hexdigest().encode()

    def _young(self, entries: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {
            key: entry
            for key, entry in entries.items()
            if isinstance(entry.get("day"), int) and entry["day"] > self._today - _DAYS
        }


def _replace(path: Path, data: bytes) -> None:
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _state(rules: Iterable[Path]) -> str:
    """The linter as it is: versions, and size and time of the files that rules are made of."""
    own = Path(__file__).parent
    files = [*own.rglob("*.py"), *rules]
    pages = catalogue.catalogue_dir()
    if isinstance(pages, Path):  # inside a zip file they are as old as the version
        files += [*pages.rglob("*.md"), *pages.rglob("*.toml")]
    libcst = importlib.util.find_spec("libcst")  # does not load it
    if libcst is not None and libcst.origin is not None:
        files.append(Path(libcst.origin).with_name("_version.py"))
    stamps = []
    for path in sorted(files):
        with contextlib.suppress(OSError):
            found = path.stat()
            stamps.append(f"{path}\0{found.st_size}\0{found.st_mtime_ns}")
    versions = (__version__, sys.version)
    return hashlib.sha256("\n".join((*versions, *stamps)).encode()).hexdigest()[:16]
