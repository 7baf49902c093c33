"""Which releases of the frameworks a project's requirements allow.

The nearest folder that names a framework decides, from a file's own up to the project's root. What
cannot be read says nothing. What a notebook or script installs itself is not read: such lines
install an old torch_xla as well, and the linter speaks of today's.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.lint.folders import join, project_root
from xladoctor.lint.requirements import Read, is_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from xladoctor.lint.looked import Looked

#: Stands for all releases that are still to come.
_LAST = "9999"


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """Releases of a framework that a project allows: fewer than there are.

    Attributes:
        of: The framework.
        required: What the requirements say (``==4.37.2``): any of them may be the one that counts.
        limits: What constraints say beside them, which install nothing themselves.
    """

    of: str
    required: tuple[str, ...]
    limits: tuple[str, ...] = ()


@functools.cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return {row["of"]: row for row in catalogue.table("releases")["release"]}


@functools.cache
def _packages() -> Mapping[str, str]:
    """The names of packages to the frameworks that they are."""
    return {name: of for of, row in _rows().items() for name in row["packages"]}


def called(framework: str) -> str:
    """What messages call the release that the tables were made of: ``transformers 5``."""
    return str(_rows()[framework]["called"])


@functools.lru_cache(maxsize=256)
def keeps_old(pins: tuple[Pin, ...], framework: str, since: str = "") -> bool:
    """Whether no release of a framework may be installed that is as new as this one.

    Args:
        pins: What the project allows.
        framework: One of ``rules/tables/releases.toml``.
        since: The release; by default the first of those that the tables speak of.
    """
    pin = next((pin for pin in pins if pin.of == framework), None)
    if pin is None:
        return False
    allowed = _Allowed(pin)
    return not any(map(allowed.has, allowed.releases(since or _rows()[framework]["since"])))


class _Allowed:
    """The releases that a pin allows."""

    def __init__(self, pin: Pin) -> None:
        from packaging.specifiers import SpecifierSet

        self._groups: list[list[SpecifierSet]] = [
            [SpecifierSet(text) for text in group] for group in (pin.required, pin.limits) if group
        ]

    def has(self, release: Version) -> bool:
        """Whether it is allowed."""
        return all(
            any(one.contains(release, prereleases=True) for one in group) for group in self._groups
        )

    def releases(self, since: str) -> Iterator[Version]:
        """Releases from one on, of which one is allowed if any is: those that are named, and next.

        A release candidate is as new as the release.
        """
        from packaging.version import InvalidVersion, Version

        first = Version(since)
        yield from (first, Version(_LAST))
        for specifier in (x for group in self._groups for several in group for x in several):
            try:
                named = Version(specifier.version.removesuffix(".*"))
            except InvalidVersion:  # ``===`` takes any text
                continue
            *start, last = named.release
            within = ".".join(map(str, (*named.release, 0, 0, 1)))
            behind = ".".join(map(str, (*start, last + 1)))
            for one in (named, Version(within), Version(behind)):
                if Version(one.base_version) >= first:
                    yield one


class Pins:
    """What the requirements of folders say, each read once.

    Args:
        looked: Looks at the disk.
        top: The folder that holds all files that were given: a project of which nothing else is
            known reaches up to there.
    """

    def __init__(self, looked: Looked, top: str) -> None:
        self._looked = looked
        self._top = os.path.realpath(top)
        self._said: dict[str, Mapping[str, Pin]] = {}
        self._known: dict[str, tuple[Pin, ...]] = {}

    def of(self, folder: str) -> tuple[Pin, ...]:
        """What counts for the files of a folder."""
        folder = os.path.realpath(folder)
        if folder not in self._known:
            found: dict[str, Pin] = {}
            for one in self._up(folder):
                found = {**self._in(one), **found}
            limiting = (pin for pin in found.values() if _limits(pin))
            self._known[folder] = tuple(sorted(limiting, key=lambda pin: pin.of))
        return self._known[folder]

    def _up(self, folder: str) -> Iterator[str]:
        """The folder and those around it, up to the project's root."""
        root, _ = project_root(self._looked, folder, self._top)
        yield folder
        while folder != root:
            folder = os.path.dirname(folder)  # noqa: PTH120
            yield folder

    def _in(self, folder: str) -> Mapping[str, Pin]:
        """What the requirements of a folder say, by framework."""
        if folder not in self._said:
            read = Read(self._looked, _packages())
            for path in self._files(folder):
                read.file(path)
            frameworks = dict.fromkeys((*read.required, *read.limits))
            self._said[folder] = {
                of: Pin(of, tuple(read.required.get(of, ())), tuple(read.limits.get(of, ())))
                for of in frameworks
            }
        return self._said[folder]

    def _files(self, folder: str) -> Iterator[str]:
        names = self._names(folder)
        yield from (join(folder, name) for name in names if is_requirements(name))
        if "requirements" in names:
            inner = join(folder, "requirements")
            yield from (join(inner, name) for name in self._names(inner) if name.endswith(".txt"))

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in self._looked.entries(folder))
        except (OSError, ValueError):
            return []


def _limits(pin: Pin) -> bool:
    """Whether it keeps anything away for good."""
    from packaging.version import Version

    return not _Allowed(pin).has(Version(_LAST))
