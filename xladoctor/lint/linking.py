"""Which of the linted files belong together: the import graph around the files for XLA devices.

Only files that name torch_xla (or a framework and TPUs) start a group; what they import from the
same project, and what imports them, joins it. A file that is imported but was not given is read for
what it says, and not reported. Groups are bounded, so that a package of thousands of files is
linted in parts.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.lint import library
from xladoctor.lint.contents import Files
from xladoctor.lint.folders import Folders, join
from xladoctor.lint.words import XLA_WORDS, called_for_tpus, words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence


#: What a file trains with that says nothing of the devices that it is started on.
_TRAINS = re.compile(r"\b(?:lightning|pytorch_lightning|accelerate|Trainer)\b")
_MOST_FILES = 100
_MOST_LINES = 20_000
#: How many imports lie between a file for XLA devices and a helper that still matters.
_DOWN = 3
_UP = 2
#: The same for what a script imports beside such a file, as the module that gives it its device.
_BESIDE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Files that are linted together.

    Attributes:
        names: All of them, sorted.
        given: Those whose findings are wanted.
        imports: File name to {module as its imports spell it: file name}. The name is "" of a
            package that the rules know as installed, and of which the project holds a copy.
        bounded: Whether more files would belong to it, if groups were not bounded.
    """

    names: tuple[str, ...]
    given: tuple[str, ...]
    imports: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    bounded: bool = False


def groups(
    given: Sequence[str], files: Files | None = None, on_tpus: Collection[str] = ()
) -> list[Group]:
    """Put files into groups; most of them stay alone.

    Args:
        given: Names of files, in the order in which they are linted.
        files: Reads them.
        on_tpus: Those whose projects start them on TPUs (see ``lint/launches``).
    """
    graph = _Graph(given, Files() if files is None else files, on_tpus)
    roots = [name for name in given if graph.is_root(name)]
    if not roots:
        return [Group((name,), (name,)) for name in given]
    found_edges = _edges(graph, roots)
    # What one file alone imports belongs to it; what all import (settings) keeps none together.
    importers = Counter(imported for _, imported in found_edges)
    edges = sorted(
        (distance, importers[imported], importer, imported)
        for (importer, imported), distance in found_edges.items()
    )
    parent = {name: name for name in graph.known}
    size = {name: (1, graph.lines(name)) for name in graph.known}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    apart: set[str] = set()
    for _, _, one, other in edges:
        first, second = find(one), find(other)
        if first == second:
            continue
        number = size[first][0] + size[second][0]
        lines = size[first][1] + size[second][1]
        if number <= _MOST_FILES and lines <= _MOST_LINES:
            parent[second] = first
            size[first] = (number, lines)
        else:
            apart |= {one, other}
    members: dict[str, list[str]] = {}
    for name in graph.known:
        members.setdefault(find(name), []).append(name)
    found = (members.pop(find(name), None) for name in given)
    return [_group(graph, given, inside, apart) for inside in found if inside is not None]


def _group(graph: _Graph, given: Sequence[str], together: Sequence[str], apart: set[str]) -> Group:
    """Some files as a group; ``apart`` are those that belong to more than they were put into."""
    inside = set(together)
    imports = {
        one: linked
        for one in together
        if (linked := graph.copies(one) | _among(graph.imports(one), inside))
    }
    mine = tuple(item for item in given if item in inside)
    return Group(tuple(sorted(together)), mine, imports, bounded=not apart.isdisjoint(inside))


def _among(imports: Mapping[str, str], inside: set[str]) -> dict[str, str]:
    return {module: other for module, other in imports.items() if other in inside}


def hold(found: Sequence[Group], edited: Mapping[str, str], files: Files) -> bool:
    """Whether groups that were found before would be found again.

    They are, where no file came or went, none imports anything else than before or turned into one
    for XLA devices, and the lines of a group decide nothing.

    Args:
        found: The groups.
        edited: The files that hold something else now, to the digests of what they held.
        files: Reads them.
    """
    of = {name: group for group in found for name in group.names if name in edited}
    for name, digest in edited.items():
        before, now = files.known_facts(digest), files.facts(name)
        if before is None or before.links != now.links:
            return False
        group = of.get(name)
        if before.lines != now.lines and (group is None or not _may_grow(group, files)):
            return False
    return True


def _may_grow(group: Group, files: Files) -> bool:
    """Whether a group holds the same files, however many lines its files had before."""
    if len(group.names) == 1 or group.bounded:
        return not group.bounded
    return sum(files.facts(name).lines for name in group.names) <= _MOST_LINES


class _Graph:
    """The files that are known, read when they are asked for.

    Paths are texts here: a tree of hundreds of files asks for thousands of them.
    """

    def __init__(self, given: Sequence[str], files: Files, on_tpus: Collection[str]) -> None:
        self.known: dict[str, None] = dict.fromkeys(given)
        self._here = os.getcwd()  # noqa: PTH109
        self._names = {self._absolute(name): name for name in given}
        self._files = files
        self._on_tpus = on_tpus
        self._folders = Folders(files.looked, _shared(self._names))
        self._imports: dict[str, dict[str, str]] = {}
        self._copies: dict[str, dict[str, str]] = {}
        self._importers: dict[str, list[str]] | None = None
        self._given = tuple(given)
        self._located: dict[tuple[str, str], str | None] = {}

    def is_root(self, name: str) -> bool:
        """Whether a file names torch_xla, or trains with a framework and is meant for TPUs."""
        if self._files.facts(name).root:
            return True
        meant = name in self._on_tpus or called_for_tpus(name)
        return meant and _TRAINS.search(self._files.source(name).text) is not None

    def lines(self, name: str) -> int:
        return self._files.facts(name).lines

    def imports(self, name: str) -> dict[str, str]:
        """Modules of the project that a file imports, as it spells them, to their files."""
        if name not in self._imports:
            found: dict[str, str] = {}
            facts = self._files.facts(name)
            modules = facts.modules
            importer = self._absolute(name) if modules else ""
            folder = os.path.dirname(importer)  # noqa: PTH120
            copies = self._copies_for(modules, folder)
            apart = {package for package, home in copies.items() if not _is_in(importer, home)}
            self._copies[name] = dict.fromkeys(copies, "")
            for module in modules:
                if module.partition(".")[0] in apart:
                    continue
                path = self._locate(module, folder)
                if path is None and not module.startswith(".") and self._is_run(name, folder):
                    # Python looks beside a script, also where that stands in a package.
                    path = self._locate(f".{module}", folder)
                if path is not None and importer != path:
                    found[module] = self._name(path, name)
            self._imports[name] = found
        return self._imports[name]

    def _is_run(self, name: str, folder: str) -> bool:
        """Whether a file is a script, or stands beside one, which may import it."""
        return self._files.facts(name).script or folder in self._with_scripts

    @functools.cached_property
    def _with_scripts(self) -> frozenset[str]:
        """The folders of the given files that are scripts."""
        scripts = (name for name in self._given if self._files.facts(name).script)
        return frozenset(os.path.dirname(self._absolute(name)) for name in scripts)  # noqa: PTH120

    def copies(self, name: str) -> dict[str, str]:
        """The packages known as installed that a file imports, and of which there is a copy."""
        self.imports(name)
        return self._copies[name]

    def _copies_for(self, modules: Sequence[str], folder: str) -> dict[str, str]:
        """The same of modules that files in a folder import, with the folders of the copies."""
        found = {}
        known = library.installed()
        for package in {module.partition(".")[0] for module in modules} & known.keys():
            path = self._locate(package, folder)
            home = os.path.dirname(path or "")  # noqa: PTH120
            if path and path.endswith("__init__.py") and self._is_file(join(home, known[package])):
                found[package] = home
        return found

    def _locate(self, module: str, folder: str) -> str | None:
        """The file that a module name means in a folder; its files often import the same."""
        key = module, folder
        if key not in self._located:
            self._located[key] = _locate(module, folder, self._folders.roots, self._is_file)
        return self._located[key]

    def importers(self, name: str) -> list[str]:
        """The given files that import a file, but for those that are for other devices."""
        if self._importers is None:
            self._importers = {}
            for other in self._given:
                if self._is_for_others(other):
                    continue
                for target in set(self.imports(other).values()):
                    self._importers.setdefault(target, []).append(other)
        return self._importers.get(name, [])

    def _is_for_others(self, name: str) -> bool:
        """``train.py``, which names no XLA, beside ``train_tpu.py``, which does.

        Whoever for XLA devices imports it takes it along all the same.
        """
        folder, own = _folder_and_words(name)
        if own & XLA_WORDS or self.is_root(name):
            return False
        return any(own < other for other in self._for_tpus.get(folder, ()))

    @functools.cached_property
    def _for_tpus(self) -> Mapping[str, Sequence[frozenset[str]]]:
        """Folder to what its files for XLA devices that say so are called, word by word."""
        found: dict[str, list[frozenset[str]]] = {}
        for name in self._given:
            folder, own = _folder_and_words(name)
            if own & XLA_WORDS and self.is_root(name):
                found.setdefault(folder, []).append(own)
        return found

    def _absolute(self, name: str) -> str:
        return os.path.normpath(os.path.join(self._here, name))  # noqa: PTH118

    def _is_file(self, path: str) -> bool:
        return path in self._names or self._folders.has(path)

    def _name(self, path: str, importer: str) -> str:
        if path not in self._names:
            name = _spelled(Path(path), Path(self._absolute(importer)), Path(importer))
            self._names[path] = name
            self.known[name] = None
        return self._names[path]


def _folder_and_words(name: str) -> tuple[str, frozenset[str]]:
    """Where a file stands, and the words that it is called by."""
    folder, file = os.path.split(name)
    return folder, words(file.removesuffix(".py"))


def _spelled(path: Path, base: Path, written: Path) -> str:
    """A file as the user spelled the one that imports it: ``base``, written as ``written``."""
    shared = next((p for p in base.parents if path.is_relative_to(p)), None)
    if shared is None:
        return str(path)
    ups = len(base.relative_to(shared).parts)
    if ups > len(written.parts):
        return str(path)
    return str(Path(*written.parts[: len(written.parts) - ups]) / path.relative_to(shared))


def _shared(paths: Iterable[str]) -> str:
    """The folder that holds all of these files; "" if none does."""
    folders = {os.path.dirname(path) for path in paths}  # noqa: PTH120
    try:
        return os.path.commonpath(folders)
    except ValueError:  # none, or on different drives
        return ""


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}{os.sep}")


def _edges(graph: _Graph, roots: Sequence[str]) -> dict[tuple[str, str], int]:
    """(importer, imported file) to how far they are from the next file for XLA devices.

    A script that names no XLA may get its device from a file that does: what else it imports runs
    on that device as well, but it comes after what is nearer.
    """
    found: dict[tuple[str, str], int] = {}

    def walk(start: Sequence[str], first: int, most: int, *, down: bool) -> None:
        seen, frontier = set(start), list(start)
        for distance in range(first, first + most):
            following: dict[str, None] = {}
            for name in frontier:
                for other in graph.imports(name).values() if down else graph.importers(name):
                    pair = (name, other) if down else (other, name)
                    found[pair] = min(distance, found.get(pair, distance))
                    if other not in seen:
                        following[other] = None
            seen.update(following)
            frontier = list(following)

    walk(roots, 1, _DOWN, down=True)
    walk(roots, 1, _UP, down=False)
    scripts = {one: None for name in roots for one in graph.importers(name)}
    walk([name for name in scripts if name not in set(roots)], _UP + 1, _BESIDE, down=True)
    return found


def _locate(
    module: str,
    folder: str,
    roots: Callable[[str], Sequence[str]],
    is_file: Callable[[str], bool],
) -> str | None:
    """The file of the same project that a module name means, None if there is none.

    Args:
        module: As an import spells it ("pkg.utils", ".utils").
        folder: That of the importing file, absolute.
        roots: Where absolute imports of files in a folder may start.
        is_file: Whether a file exists.
    """
    rest = module.lstrip(".")
    dots = len(module) - len(rest)
    parts = rest.replace(".", os.sep)
    if dots:
        folders: Sequence[str] = _above(folder, dots - 1)
    elif rest.partition(".")[0] in sys.stdlib_module_names:
        return None
    else:
        folders = (*roots(folder), *_around(folder, rest.partition(".")[0]))
    for start in folders:
        base = join(start, parts) if parts else start
        for path in (
            (f"{base}.py", join(base, "__init__.py")) if parts else (join(base, "__init__.py"),)
        ):
            if is_file(path):
                return path
    return None


def _around(folder: str, package: str) -> Iterator[str]:
    """Where a package stands that holds a folder: it imports itself, whatever marks the project."""
    above, name = os.path.split(folder)
    while name:
        if name == package:
            yield above
        above, name = os.path.split(above)


def _above(folder: str, count: int) -> Sequence[str]:
    """The folder so many above another; none if there are not so many."""
    for _ in range(count):
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return ()
        folder = above
    return (folder,)
