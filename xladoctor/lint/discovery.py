"""Which files are linted: those that files and folders on the command line mean."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pathspec

from xladoctor.errors import UsageError
from xladoctor.lint import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUFFIXES = (".py", ".pyi", ".ipynb")

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


def discover(paths: Sequence[str], search: Search) -> list[Path]:
    """The files that the given files and folders mean, each once, in the order of their names.

    Raises:
        UsageError: A path does not exist.
    """
    spec = pathspec.GitIgnoreSpec.from_lines(search.exclude)
    root = sources.absolute(search.root)
    found: dict[Path, Path] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            if search.force_exclude and _excluded(path, spec, root, folder=True):
                continue
            for item in _walk(
                path, spec, root, _outer_ignores(path) if search.respect_gitignore else None
            ):
                found.setdefault(sources.absolute(item), item)
        elif path.exists():
            if not (search.force_exclude and _excluded(path, spec, root)):
                found.setdefault(sources.absolute(path), path)
        else:
            raise UsageError(f"{given}: no such file or folder")
    return sorted(found.values(), key=lambda item: item.as_posix())


def is_excluded(path: Path, search: Search) -> bool:
    """Whether the patterns of a search leave out a file or a folder that it is in."""
    spec = pathspec.GitIgnoreSpec.from_lines(search.exclude)
    return _excluded(path, spec, sources.absolute(search.root))


_Ignores = list[tuple[Path, pathspec.GitIgnoreSpec]]


def _walk(
    folder: Path, spec: pathspec.GitIgnoreSpec, root: Path, ignores: _Ignores | None
) -> Iterator[Path]:
    if ignores is not None:
        ignores = [*ignores, *_ignore_file(folder)]
    try:
        entries = sorted(folder.iterdir(), key=lambda item: item.name)
    except OSError:
        return  # a folder we may not look into holds nothing that could be linted
    for entry in entries:
        is_folder = entry.is_dir()
        if not is_folder and entry.suffix not in SUFFIXES:
            continue
        if is_folder and entry.is_symlink():
            continue  # may lead around in a circle; ruff does not follow it either
        if _excluded(entry, spec, root, folder=is_folder):
            continue
        if ignores and _ignored(entry, ignores, folder=is_folder):
            continue
        if is_folder:
            yield from _walk(entry, spec, root, ignores)
        elif entry.is_file():
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


def _ignore_file(folder: Path) -> _Ignores:
    try:
        lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(sources.absolute(folder), pathspec.GitIgnoreSpec.from_lines(lines))]


def _outer_ignores(folder: Path) -> _Ignores:
    """The ignore files above a folder, down from the repository's root."""
    above: list[Path] = []
    full = sources.absolute(folder)
    current = full
    while not (current / ".git").exists():
        if current.parent == current:
            return []
        current = current.parent
        above.append(current)
    return [item for parent in reversed(above) for item in _ignore_file(parent)]
