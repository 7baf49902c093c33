"""Which files are linted: those that files and folders on the command line mean."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from xladoctor import files
from xladoctor.errors import UsageError
from xladoctor.lint import sources
from xladoctor.lint.looked import Looked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pathspec

SUFFIXES = (".py", ".pyi", ".ipynb")

_IGNORE = ".gitignore"
#: Folders that hold other people's or generated code; the same list as ruff's, and our own.
DEFAULT_EXCLUDE = (
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".git-rewrite",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pants.d",
    ".pyenv",
    ".pytest_cache",
    ".pytype",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    ".vscode",
    ".xladoctor",
    "__pypackages__",
    "_build",
    "buck-out",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """How files are looked for.

    Attributes:
        exclude: Patterns in the form of ``.gitignore``, relative to ``root``.
        force_exclude: Also leave out files that were given by name.
        respect_gitignore: Leave out what ``.gitignore`` files leave out.
        root: The folder that patterns are relative to.
    """

    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    force_exclude: bool = False
    respect_gitignore: bool = True
    root: Path = dataclasses.field(default_factory=Path)


def discover(
    paths: Sequence[str],
    search: Search,
    unreadable: Callable[[Path, OSError], None] = lambda _folder, _error: None,
    looked: Looked | None = None,
) -> list[Path]:
    """The files that the given files and folders mean, each once, in the order of their names.

    Args:
        paths: Files and folders.
        search: How folders are searched.
        unreadable: Called for each folder that cannot be looked into.
        looked: Remembers what was looked at.

    Raises:
        UsageError: A path does not exist, or a pattern is none.
    """
    folders = any(os.path.isdir(given) for given in paths)  # noqa: PTH112
    own = not set(search.exclude) <= set(DEFAULT_EXCLUDE)
    # Files that are given by name need no patterns, and what reads patterns takes time to load.
    spec = excluding(search.exclude) if folders or own or search.force_exclude else None
    root = sources.absolute(search.root)
    looked = looked or Looked(0)
    found: dict[Path, Path] = {}
    for given in paths:
        path = Path(given)
        if spec is not None and os.path.isdir(path):  # noqa: PTH112  (says no where Path raises)
            if search.force_exclude and _excluded(path, spec, root, folder=True):
                continue
            ignores = _outer_ignores(path, looked) if search.respect_gitignore else None
            for item in _walk(path, spec, root, ignores, unreadable, looked):
                found.setdefault(sources.absolute(item), item)
        elif os.path.lexists(path):
            if spec is None or not (search.force_exclude and _excluded(path, spec, root)):
                found.setdefault(sources.absolute(path), path)
        else:
            raise UsageError(f"{given}: no such file or folder")
    return sorted(found.values(), key=lambda item: item.as_posix())


def is_excluded(path: Path, search: Search) -> bool:
    """Whether the patterns of a search leave out a file or a folder that it is in."""
    spec = excluding(search.exclude)
    return _excluded(path, spec, sources.absolute(search.root))


_Ignores: TypeAlias = "list[tuple[Path, pathspec.GitIgnoreSpec]]"


def _walk(
    start: Path,
    spec: pathspec.GitIgnoreSpec,
    root: Path,
    outer: _Ignores | None,
    unreadable: Callable[[Path, OSError], None],
    looked: Looked,
) -> Iterator[Path]:
    waiting = [(start, outer)]
    while waiting:
        folder, ignores = waiting.pop()
        try:
            entries = looked.entries(folder)
        except OSError as error:
            unreadable(folder, error)
            continue
        if ignores is not None and any(item.name == _IGNORE for item in entries):
            ignores = [*ignores, *_ignore_file(folder, looked)]
        for found in entries:
            is_folder = os.path.isdir(found.path)  # noqa: PTH112  (says no where others raise)
            if not is_folder and os.path.splitext(found.name)[1] not in SUFFIXES:  # noqa: PTH122
                continue
            if is_folder and found.is_symlink():
                continue  # may lead around in a circle; ruff does not follow it either
            entry = folder / found.name
            if _excluded(entry, spec, root, folder=is_folder):
                continue
            if ignores and _ignored(entry, ignores, folder=is_folder):
                continue
            if is_folder:
                waiting.append((entry, ignores))
            elif os.path.isfile(entry):  # noqa: PTH113
                yield entry


def _excluded(
    path: Path, spec: pathspec.GitIgnoreSpec, root: Path, *, folder: bool = False
) -> bool:
    full = sources.absolute(path)
    relative = full.relative_to(root) if full.is_relative_to(root) else Path(full.name)
    text = relative.as_posix()
    return text != "." and spec.match_file(text + "/" if folder else text)


def _ignored(path: Path, ignores: _Ignores, *, folder: bool) -> bool:
    full = sources.absolute(path)
    for base, spec in reversed(ignores):
        text = full.relative_to(base).as_posix() + ("/" if folder else "")
        verdict = spec.check_file(text).include
        if verdict is not None:
            return verdict
    return False


def excluding(patterns: Sequence[str]) -> pathspec.GitIgnoreSpec:
    """What patterns of the user's leave out.

    Raises:
        UsageError: One of them is none.
    """
    spec = _spec(patterns)
    if spec is None:
        wrong = next((pattern for pattern in patterns if _spec([pattern]) is None), "")
        raise UsageError(
            f"{wrong!r} is no pattern of files: write it as in .gitignore, such as 'old/*.py'"
        )
    return spec


def _ignore_file(folder: Path, looked: Looked) -> _Ignores:
    """The patterns of a folder's ``.gitignore``; those that git does not take either are left."""
    try:
        text = looked.read(folder / _IGNORE, files.read_settings)
    except OSError:
        return []
    lines = sources.rows(text.decode("utf-8", errors="replace"))
    spec = _spec(lines) or _spec([line for line in lines if _spec([line]) is not None])
    return [(sources.absolute(folder), spec)] if spec is not None else []


def _spec(patterns: Sequence[str]) -> pathspec.GitIgnoreSpec | None:
    """Patterns made ready; None if one of them is none."""
    import pathspec

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the regular expressions that patterns become
            return pathspec.GitIgnoreSpec.from_lines(patterns)
    except (ValueError, re.error, RecursionError, OverflowError):
        return None


def _outer_ignores(folder: Path, looked: Looked) -> _Ignores:
    """The ignore files above a folder, down from the repository's root."""
    above: list[Path] = []
    full = sources.absolute(folder)
    current = full
    while not looked.exists(current / ".git"):
        if current.parent == current:
            return []
        current = current.parent
        above.append(current)
    return [item for parent in reversed(above) for item in _ignore_file(parent, looked)]
