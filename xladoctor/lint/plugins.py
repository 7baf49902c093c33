"""Rules of the user's own project: modules named in the settings, and entry points.

A plugin is a module that uses :func:`xladoctor.lint.rules.rule`; importing it registers its rules.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import files as reading
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENTRY_POINTS = "xladoctor.rules"

_loaded: set[str] = set()
_files: set[Path] = set()


def load(plugins: Sequence[str], root: Path, origin: str = "plugins") -> None:
    """Import plugins, each once; those that installed packages offer come first.

    Args:
        plugins: Names of modules ("mycompany.xla_rules") or files ("tools/xla_rules.py").
        root: The folder that files and modules are looked for in.
        origin: Where they are named, for messages.

    Raises:
        UsageError: One of them cannot be imported, or claims a code that is taken.
    """
    if _may_be_offered(tuple(sys.path)):
        import importlib.metadata

        points = importlib.metadata.entry_points(group=ENTRY_POINTS)
        for point in sorted(points, key=lambda point: point.name):
            _import(point.value, f"entry point {point.name} = {point.value}", point.load)
    folder = str(root.resolve())
    for name in plugins:
        if name.endswith(".py"):
            path = root.resolve() / name
            if not reading.is_inside(path, root):
                raise UsageError(f"{origin}: {name} leads out of {root}: name a file inside it")
            _import(str(path), f"{origin}: {name}", functools.partial(_import_file, path))
        else:
            _import(name, f"{origin}: {name}", functools.partial(_import_module, name, folder))


@functools.lru_cache(maxsize=4)
def _may_be_offered(path: tuple[str, ...]) -> bool:
    """Whether a package installed on a path may offer rules: it names our group of entry points.

    To load ``importlib.metadata`` and let it read all packages takes longer than to lint a file.
    """
    wanted = ENTRY_POINTS.encode()
    for folder in path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208
        except NotADirectoryError:
            return True  # packages in an archive
        except OSError:
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info", ".egg")):
                continue
            for inner in ("entry_points.txt", "EGG-INFO/entry_points.txt"):
                try:
                    with open(f"{folder or '.'}/{name}/{inner}", "rb") as file:  # noqa: PTH123
                        text = file.read()
                except NotADirectoryError:
                    return True
                except OSError:
                    continue
                if wanted in text:
                    return True
    return False


def _import(key: str, what: str, importing: Callable[[], object]) -> None:
    if key in _loaded:
        return
    before = set(sys.modules)
    try:
        made = importing()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what} cannot be loaded ({reason}): fix it or leave it out") from error
    _loaded.add(key)
    modules = [made, *(sys.modules[item] for item in set(sys.modules) - before)]
    for module in modules:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            _files.add(Path(file))


def files() -> frozenset[Path]:
    """The files that the loaded plugins are made of, as far as loading them showed."""
    return frozenset(_files)


def _import_module(name: str, folder: str) -> object:
    """A module of the project's folder, which need not be installed."""
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def _import_file(path: Path) -> object:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"_xladoctor_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
