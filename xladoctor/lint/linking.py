"""Which of the linted files belong together: the import graph around the files for XLA devices.

Only files that name torch_xla (or a framework and TPUs) start a group; what they import from the
same project, and what imports them, joins it. A file that is imported but was not given is read for
what it says, and not reported. Groups are bounded, so that a package of thousands of files is
linted in parts.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.lint import sources
from xladoctor.lint.contents import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_MOST_FILES = 40
_MOST_LINES = 20_000
#: How many imports lie between a file for XLA devices and a helper that still matters.
_DOWN = 3
_UP = 2
_PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_MOST_FOLDERS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Files that are linted together.

    Attributes:
        names: All of them, sorted.
        given: Those whose findings are wanted.
        imports: File name to {module as its imports spell it: file name}.
    """

    names: tuple[str, ...]
    given: tuple[str, ...]
    imports: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)


def groups(given: Sequence[str], files: Files | None = None) -> list[Group]:
    """Put files into groups; most of them stay alone.

    Args:
        given: Names of files, in the order in which they are linted.
        files: Reads them.
    """
    graph = _Graph(given, Files() if files is None else files)
    roots = [name for name in given if graph.is_root(name)]
    if not roots:
        return [Group((name,), (name,)) for name in given]
    edges = sorted(_edges(graph, roots))
    parent = {name: name for name in graph.known}
    size = {name: (1, graph.lines(name)) for name in graph.known}

    def find(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for _, one, other in edges:
        first, second = find(one), find(other)
        number = size[first][0] + size[second][0]
        lines = size[first][1] + size[second][1]
        if first != second and number <= _MOST_FILES and lines <= _MOST_LINES:
            parent[second] = first
            size[first] = (number, lines)
    members: dict[str, list[str]] = {}
    for name in graph.known:
        members.setdefault(find(name), []).append(name)
    wanted = set(given)
    found = []
    for name in given:
        together = members.pop(find(name), None)
        if together is None:
            continue
        inside = set(together)
        imports = {
            one: {module: other for module, other in graph.imports(one).items() if other in inside}
            for one in together
            if len(together) > 1
        }
        mine = tuple(item for item in given if item in inside and item in wanted)
        found.append(Group(tuple(sorted(together)), mine, imports))
    return found


class _Graph:
    """The files that are known, read when they are asked for."""

    def __init__(self, given: Sequence[str], files: Files) -> None:
        self.known: dict[str, None] = dict.fromkeys(given)
        self._names = {sources.absolute(name): name for name in given}
        self._files = files
        self._exist: dict[Path, bool] = {}
        self._roots: dict[Path, list[Path]] = {}
        self._imports: dict[str, dict[str, str]] = {}
        self._importers: dict[str, list[str]] | None = None
        self._given = tuple(given)

    def is_root(self, name: str) -> bool:
        return self._files.facts(name).root

    def lines(self, name: str) -> int:
        return self._files.facts(name).lines

    def imports(self, name: str) -> dict[str, str]:
        """Modules of the project that a file imports, as it spells them, to their files."""
        if name not in self._imports:
            found: dict[str, str] = {}
            importer = sources.absolute(name)
            for module in self._files.facts(name).modules:
                path = self._locate(module, importer)
                if path is not None and importer != path:
                    found[module] = self._name(path, name)
            self._imports[name] = found
        return self._imports[name]

    def importers(self, name: str) -> list[str]:
        """The given files that import a file."""
        if self._importers is None:
            self._importers = {}
            for other in self._given:
                for target in set(self.imports(other).values()):
                    self._importers.setdefault(target, []).append(other)
        return self._importers.get(name, [])

    def _locate(self, module: str, importer: Path) -> Path | None:
        if importer.parent not in self._roots:
            self._roots[importer.parent] = _roots(importer)
        return _locate(module, importer, self._roots[importer.parent], self._is_file)

    def _is_file(self, path: Path) -> bool:
        if path not in self._exist:
            self._exist[path] = path in self._names or _is_file(path)
        return self._exist[path]

    def _name(self, path: Path, importer: str) -> str:
        if path not in self._names:
            # Spelled as the user spelled the file that imports it.
            base = sources.absolute(importer)
            written = Path(importer)
            shared = next((p for p in base.parents if path.is_relative_to(p)), None)
            ups = len(base.relative_to(shared).parts) if shared is not None else 0
            near = ups <= len(written.parts) and shared is not None
            name = (
                str(Path(*written.parts[: len(written.parts) - ups]) / path.relative_to(shared))
                if near and shared is not None
                else str(path)
            )
            self._names[path] = name
            self.known[name] = None
        return self._names[path]


def _edges(graph: _Graph, roots: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """(distance from a file for XLA devices, one file, other file)."""
    for root in roots:
        seen = {root}
        frontier = [root]
        for distance in range(1, _DOWN + 1):
            following = []
            for name in frontier:
                for other in graph.imports(name).values():
                    yield distance, name, other
                    if other not in seen:
                        seen.add(other)
                        following.append(other)
            frontier = following
        frontier, seen = [root], {root}
        for distance in range(1, _UP + 1):
            following = []
            for name in frontier:
                for other in graph.importers(name):
                    yield distance, name, other
                    if other not in seen:
                        seen.add(other)
                        following.append(other)
            frontier = following


def _locate(
    module: str, importer: Path, roots: Sequence[Path], is_file: Callable[[Path], bool]
) -> Path | None:
    """The file of the same project that a module name means, None if there is none.

    Args:
        module: As an import spells it ("pkg.utils", ".utils").
        importer: The importing file, absolute.
        roots: Where absolute imports may start.
        is_file: Whether a file exists.
    """
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module[dots:].split(".") if part]
    if dots:
        folders = [importer.parents[dots - 1]] if dots <= len(importer.parents) else []
    elif parts[0] in sys.stdlib_module_names:
        return None
    else:
        folders = list(roots)
    for folder in folders:
        base = folder.joinpath(*parts)
        found = [base.with_name(base.name + ".py")] if parts else []
        for path in (*found, base / "__init__.py"):
            if is_file(path):
                return path
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have: too long, a null byte
        return False


def _roots(importer: Path) -> list[Path]:
    """The folders of the project from which absolute imports may start, the nearest first."""
    folders = []
    for folder in list(importer.parents)[:_MOST_FOLDERS]:
        # A file inside a package imports by the package's name, not from its own folder.
        if not (folder / "__init__.py").is_file():
            folders += [folder, folder / "src"]
        if any((folder / mark).exists() for mark in _PROJECT_MARKS):
            return folders
    return folders[:2]
