"""What the user trusts, kept outside of every project: whose plugins run, and a secret for caches.

A clone brings its configuration with it. What that names is data, except for plugins, which are
code: they run only with ``--allow-plugins`` or below a folder that the user has listed. Entry
points of installed packages were chosen when the package was installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xladoctor import files, visible
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from xladoctor.config import Settings

#: The list of trusted folders, in the user's own folder of settings.
_TRUSTED = "trusted.toml"
_KEY = "folders"
_SECRET = "cache-secret"  # noqa: S105  (the name of the file)
_SECRET_BYTES = 32


def folder() -> Path:
    """The user's own folder of settings (on Linux ``~/.config/xladoctor``)."""
    return Path(click.get_app_dir("xladoctor"))


def with_trusted_plugins(settings: Settings, *, allow: bool) -> Settings:
    """Settings without the plugins that may not run, which are in ``withheld`` then.

    Args:
        settings: As the configuration file says.
        allow: Whether ``--allow-plugins`` was given.

    Raises:
        UsageError: The list of trusted folders cannot be read.
    """
    if not settings.plugins or allow or _trusts(settings.root):
        return settings
    return dataclasses.replace(settings, plugins=(), withheld=settings.plugins)


def tell_withheld(settings: Settings) -> None:
    """Say which plugins did not run, and what makes them run."""
    if settings.withheld:
        text = (
            f"warning: {settings.file}: the plugins that it names ({', '.join(settings.withheld)}) "
            "were not run, since their code came with the project: run them with --allow-plugins, "
            f'or write {_KEY} = ["{settings.root}"] into {folder() / _TRUSTED}'
        )
        click.echo(visible.line(text), err=True)


def cache_secret() -> bytes | None:
    """A secret of the user's with which caches are sealed; None where none can be kept.

    A cache that came with a clone was sealed with another one, so it can hide no finding.
    """
    path = folder() / _SECRET
    for _ in range(2):
        with contextlib.suppress(OSError):
            found = files.read_bytes(path, _SECRET_BYTES)
            if len(found) == _SECRET_BYTES:
                return found
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Beside it and renamed: whoever reads it at this moment must not see half of it.
            import secrets
            import tempfile

            descriptor, name = tempfile.mkstemp(prefix=f".{_SECRET}.", dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
            Path(name).replace(path)
    return None


def _trusts(root: Path) -> bool:
    return any(files.is_inside(root, Path(name).expanduser()) for name in _trusted_folders())


def _trusted_folders() -> list[str]:
    from xladoctor import config

    path = folder() / _TRUSTED
    if not os.path.lexists(path):
        return []
    document = config.load(path)
    named = document.get(_KEY, [])
    if not isinstance(named, list) or set(document) - {_KEY}:
        raise UsageError(f'{path}: write {_KEY} = ["/home/me/work", "~/other"] and nothing else')
    for name in named:
        if not isinstance(name, str) or not Path(name).expanduser().is_absolute():
            raise UsageError(f"{path}: {name!r} must be an absolute path, or begin with ~/")
    return [str(name) for name in named]
