"""What stands in the folders of a project, and where its absolute imports may start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.lint.looked import Looked

_PROJECT_MARKS = frozenset({".git", "pyproject.toml", "setup.py", "setup.cfg"})
#: What stands in the folder of a whole project.
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_MOST_FOLDERS = 6


class Folders:
    """What stands in folders, each read once.

    Args:
        looked: Looks at the disk.
        top: The folder that holds all files that were given. Up to there a project that nothing
            marks (an archive that was unpacked) is believed to reach.
    """

    def __init__(self, looked: Looked, top: str) -> None:
        self._looked = looked
        self._top = top
        self._listed: dict[str, frozenset[str]] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._files: dict[str, bool] = {}

    def names(self, folder: str) -> frozenset[str]:
        """What stands in a folder."""
        if folder not in self._listed and self._is_missing(folder):
            self._listed[folder] = frozenset()
        elif folder not in self._listed:
            try:
                entries = self._looked.entries(folder)
                self._listed[folder] = frozenset(item.name for item in entries)
            except (OSError, ValueError):  # none, or a name that none can have
                self._listed[folder] = frozenset()
        return self._listed[folder]

    def _is_missing(self, folder: str) -> bool:
        """Whether a folder around it, as it was listed, shows that there is none.

        Most modules that files import are not the project's: no later run has to look for them,
        since a folder that comes into being changes what stands in the one around it.
        """
        above, name = os.path.split(folder)
        if above == folder:
            return False
        known = self._listed.get(above)
        return self._is_missing(above) if known is None else name not in known

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        if path not in self._files:
            folder, name = os.path.split(path)
            self._files[path] = name in self.names(folder) and os.path.isfile(path)  # noqa: PTH113
        return self._files[path]

    def roots(self, folder: str) -> tuple[str, ...]:
        """The folders of the project from which absolute imports may start, the nearest first."""
        if folder not in self._roots:
            self._roots[folder] = self._find_roots(folder)
            for start in self._roots[folder]:
                self.names(start)  # shows at once what is missing in it
        return self._roots[folder]

    def _holds(self, folder: str, name: str) -> bool:
        """Whether a name stands in a folder, of which nothing else matters.

        So what comes and goes around a project, in the user's own folder, is not looked at.
        """
        if folder in self._listed:
            return name in self._listed[folder]
        return self._looked.exists(join(folder, name))

    def _find_roots(self, folder: str) -> tuple[str, ...]:
        found: list[str] = []
        without_mark = 2
        for _ in range(_MOST_FOLDERS):
            # A file inside a package imports by the package's name, not from its own folder.
            if not self._holds(folder, "__init__.py"):
                found += [folder, join(folder, "src")]
            if any(self._holds(folder, mark) for mark in _PROJECT_MARKS):
                return tuple(found)
            if folder == self._top:
                without_mark = max(without_mark, len(found))
            above = os.path.dirname(folder)  # noqa: PTH120
            if above == folder:
                break
            folder = above
        return tuple(found[:without_mark])


def project_root(looked: Looked, folder: str, top: str) -> tuple[str, bool]:
    """The root of the project of a folder, and whether anything marks it.

    It is the nearest folder with ``.git``, or where there is none, with a mark around all files.
    Only whether these are there is asked: what comes and goes around a project is nothing to it.

    Args:
        looked: Looks at the disk.
        folder: A folder, as a real path.
        top: The folder that holds all files that were given, as a real path: a project of which
            nothing else is known reaches up to there.
    """
    above = [folder]
    while (parent := os.path.dirname(above[-1])) != above[-1]:  # noqa: PTH120
        above.append(parent)
    for one in above:
        if looked.exists(join(one, _ROOT_MARKS[0])):
            return one, True
    if top not in above:
        return folder, False
    around = above[above.index(top) :]
    marked = (x for x in around if any(looked.exists(join(x, mark)) for mark in _ROOT_MARKS))
    found = next(marked, None)
    return (top, False) if found is None else (found, True)


def join(folder: str, name: str) -> str:
    """The path of a name in a folder."""
    return f"{folder.rstrip(os.sep)}{os.sep}{name}"
