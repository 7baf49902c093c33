"""A whole run: what it looked at and found, kept so that the next one need not look again.

While all is as it was, the answer is this one value. Where files were edited that import the same
as before, what is linted together is the same too: only groups with an edited file are asked for.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from xladoctor.findings import packed, unpacked
from xladoctor.lint.looked import Looked
from xladoctor.lint.store import BROKEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.linking import Group
    from xladoctor.lint.looked import Changes
    from xladoctor.lint.store import Store

    #: Names of files to what was found in them.
    Found = Mapping[str, Sequence[Finding]]

_BROKEN = (*BROKEN, KeyError, AttributeError)


class Run:
    """A whole run: what it looks at, and what is known of it from the last time.

    Attributes:
        search: What it looks at to know which files there are, and what is asked of them.
        looked: What it looks at to lint them.
        whole: Whether it may be remembered.

    Args:
        store: Where it is kept.
        key: Under what: all that it is asked.
        now: The time (nanoseconds since the epoch).
    """

    def __init__(self, store: Store, key: str, now: int) -> None:
        self._store, self._key = store, key
        entry = store.get(key)
        self._before: dict[str, Any] = entry if isinstance(entry, dict) else {}
        self.search = Looked(now, self._before.get("search"))
        self.looked = Looked(now, self._before.get("looked"))
        self.whole = True
        self._goes_on = False
        self._taken: Collection[str] = ()

    @functools.cached_property
    def _searched(self) -> Changes | None:
        return self._changes(self.search)

    @functools.cached_property
    def _seen(self) -> Changes | None:
        return self._changes(self.looked)

    def _changes(self, looked: Looked) -> Changes | None:
        try:
            return looked.changes() if self._before else None
        except _BROKEN:
            return None

    @property
    def edited(self) -> Mapping[str, str]:
        """The files that were edited since the last time, to the digests of what they held."""
        return self._seen.edited if self._seen is not None else {}

    def names(self) -> list[str] | None:
        """The files that there are, if the search for them would be as the last time."""
        if self._searched is None or self._searched.edited:
            return None
        try:
            names = list(self._before["found"])
        except _BROKEN:
            return None
        self.search.take(self._searched)
        return names

    def found(self) -> dict[str, tuple[Finding, ...]] | None:
        """What was found in each file, in order, if none of them changed either."""
        if self.names() is None or self._seen is None or self._seen.edited:
            return None
        try:
            found = unpacked_found(self._before["found"])
            self._store.use_with(self._key, self._before["uses"])
        except _BROKEN:
            return None
        self.looked.take(self._seen)
        if self._seen.fresh or (self._searched is not None and self._searched.fresh):
            self._put(self._before)
        return found

    def groups(self, names: Sequence[str]) -> list[tuple[Group, str]] | None:
        """What was linted together the last time, and the keys of what was found in it.

        None if files came or went since, or other ones than ``names`` were linted.
        """
        if self.names() != list(names) or self._seen is None:
            return None
        from xladoctor.lint.linking import Group

        try:
            return [
                (Group(tuple(all_of), tuple(given), imports, bool(bounded)), str(key))
                for all_of, given, imports, bounded, key in self._before["groups"]
            ]
        except _BROKEN:
            return None

    def go_on(self, groups: Iterable[Group]) -> dict[str, tuple[Finding, ...]]:
        """Take over what was found in those of the groups in which no file was edited."""
        assert self._seen is not None
        same = [group for group in groups if self.edited.keys().isdisjoint(group.names)]
        try:
            given = {name: self._before["found"][name] for group in same for name in group.given}
            found = unpacked_found(given) or {}
            self._store.use_with(self._key, self._before["uses"])
        except _BROKEN:
            return {}
        self.looked.take(self._seen)
        self._goes_on, self._taken = True, given.keys()
        return found

    def keep(
        self,
        found: Found,
        groups: Sequence[tuple[Group, str]],
        used: Iterable[str],
        stale: Iterable[str],
    ) -> None:
        """Remember it with what it has looked at.

        Args:
            found: What was found in each file.
            groups: What was linted together, and the keys of what was found in it.
            used: Keys of what it asked for.
            stale: Keys that the run before asked for, and that no longer stand for anything.
        """
        uses = dict.fromkeys(used)
        if self._goes_on:  # what it took over, it did not ask for
            uses |= dict.fromkeys(self._before["uses"])
            gone = {*stale, *(key for *_, key in self._before["groups"])}
            for key in gone - {key for _, key in groups}:
                uses.pop(key, None)
        known = {name: self._before["found"][name] for name in self._taken}
        fresh = packed_found({name: found[name] for name in found if name not in known})
        self._put(
            {
                "found": {name: (known if name in known else fresh)[name] for name in found},
                "groups": [[*_plain(group), key] for group, key in groups],
                "uses": list(uses),
            }
        )

    def _put(self, entry: Mapping[str, Any]) -> None:
        seen = {"search": self.search.seen(), "looked": self.looked.seen()}
        self._store.put(self._key, {**entry, **seen})


def _plain(group: Group) -> list[object]:
    return [getattr(group, field.name) for field in dataclasses.fields(group)]


def packed_found(found: Found) -> dict[str, list[dict[str, Any]]]:
    """What was found in files, as plain data."""
    return {name: [packed(item) for item in items] for name, items in found.items()}


def unpacked_found(entry: Any) -> dict[str, tuple[Finding, ...]] | None:
    """The other way."""
    if entry is None:
        return None
    return {
        str(name): tuple(unpacked(item) for item in findings) for name, findings in entry.items()
    }
