"""What is linted and how: flags and settings become files, each with its plan."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import config, files
from xladoctor.cli import lint_files, trust
from xladoctor.errors import UsageError
from xladoctor.lint import plugins
from xladoctor.lint.asked import NEWEST_TORCH_XLA, LintOptions
from xladoctor.lint.cache import Cache
from xladoctor.lint.looked import Looked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xladoctor.lint.discovery import Search
    from xladoctor.lint.kept_run import Run
    from xladoctor.lint.run import Plan

_CACHE = Path(".xladoctor", "cache")
_DAY = 24 * 60 * 60


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """The command line, codes already checked; ``flags`` by their Python names."""

    paths: tuple[str, ...]
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] | None = None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixable: tuple[str, ...] | None = None
    unfixable: tuple[str, ...] | None = None

    def flag(self, name: str) -> Any:
        """A flag; None if the command has no such flag."""
        return self.flags.get(name)

    @property
    def shows(self) -> bool:
        """Whether only files or settings are shown: then no code of plugins runs at all."""
        return bool(self.flag("show_settings") or self.flag("show_files"))

    @property
    def fixes(self) -> bool:
        """Whether files are changed."""
        return bool(self.flag("fix") or self.flag("fix_only")) and not self.flag("diff")

    @property
    def from_stdin(self) -> bool:
        """Whether the code comes from standard input."""
        return "-" in self.paths

    @property
    def stdin_name(self) -> str:
        """What the code from standard input is called."""
        return str(self.flag("stdin_filename") or "-")


def settings_of(request: Request, folder: Path | None = None) -> config.Settings:
    """The settings that count in a folder (by default: the one that holds everything given).

    Raises:
        UsageError: A flag or setting cannot be used.
    """
    if request.flag("isolated") and request.flag("config"):
        raise UsageError("--isolated and --config exclude each other: leave one out")
    settings = config.Settings()
    if request.flag("config"):
        settings = config.read(Path(request.flags["config"]))
    elif not request.flag("isolated"):
        found = config.find(_start(request) if folder is None else folder)
        settings = config.read(found) if found is not None else settings
    if request.shows:
        settings = dataclasses.replace(settings, plugins=(), withheld=settings.plugins)
    else:
        allow = bool(request.flag("allow_plugins"))
        settings = trust.with_trusted_plugins(settings, allow=allow)
    return dataclasses.replace(settings, **_changes(request, settings))


def _changes(request: Request, settings: config.Settings) -> dict[str, Any]:
    """What the flags change in the settings."""
    changes: dict[str, Any] = {}
    if request.select is not None:
        # As in ruff: a selection on the command line starts afresh.
        changes.update(select=request.select, extend_select=(), ignore=())
    for name in ("ignore", "extend_select", "per_file_ignores"):
        value = getattr(request, name)
        if value:
            changes[name] = (*changes.get(name, getattr(settings, name)), *value)
    for name in ("exclude", "extend_exclude"):
        text = request.flag(name)
        if text is not None:
            changes[name] = tuple(item.strip() for item in text.split(",") if item.strip())
    for name in ("output_format", "target", "target_torch_xla"):
        if request.flag(name) is not None:
            changes[name] = request.flag(name)
    if request.flag("force_exclude"):
        changes["force_exclude"] = True
    return changes


def _start(request: Request) -> Path:
    """The folder from which settings are looked for: the one that holds everything given."""
    names = [name for name in request.paths if name != "-"]
    if request.from_stdin and request.flag("stdin_filename"):
        names.append(request.stdin_name)
    if not names:
        return Path()
    folders = [path if path.is_dir() else path.parent for path in map(Path, names)]
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))


def plan_of(request: Request, settings: config.Settings) -> Plan:
    """What to do with the files for which the settings count.

    Raises:
        UsageError: A code or version means nothing.
    """
    from xladoctor.lint import run as runner

    target = NEWEST_TORCH_XLA
    if settings.target_torch_xla is not None:
        target = config.version(settings.target_torch_xla, "--target-torch-xla")  # type: ignore[assignment]
    fix = "no"
    if request.fixes or request.flag("diff"):
        fix = "unsafe" if request.flag("unsafe_fixes") else "safe"
    chosen = functools.partial(runner.chosen_codes, missing=bool(settings.withheld))
    device = settings.target or ""
    codes = chosen(settings.select, settings.extend_select, settings.ignore, device=device)
    for _, ignored in settings.per_file_ignores:
        runner.check_codes(ignored, missing=bool(settings.withheld))
    fixable = None
    if request.fixable is not None or request.unfixable is not None:
        fixable = chosen(request.fixable, (), request.unfixable or ())
    return runner.Plan(
        LintOptions(codes, target, _library(settings), device),
        settings.per_file_ignores,
        settings.root,
        fix,
        fixable,
    )


def plan_beside(request: Request, settings: config.Settings, path: Path) -> Plan:
    """What to do with one file: what its project requires counts too.

    Raises:
        UsageError: A code or version means nothing.
    """
    told = _Told(Looked(0), str(_start(request)))
    return told.of(plan_of(request, settings), str(path.parent))


class _Told:
    """What files of a project say beside its settings: its requirements, and how it is started."""

    def __init__(self, looked: Looked, top: str) -> None:
        from xladoctor.lint.launches import Launches
        from xladoctor.lint.pins import Pins

        self._pins, self._launches = Pins(looked, top), Launches(looked, top)

    def of(self, plan: Plan, folder: str) -> Plan:
        """A plan for the files of a folder, with what is said of them."""
        pins, started = self._pins.of(folder), self._launches.of(folder)
        options = dataclasses.replace(plan.options, pins=pins, started=started)
        return dataclasses.replace(plan, options=options)


def load_plugins(request: Request, settings: config.Settings) -> None:
    """Load the rules that the settings name, and say which of them may not run.

    Raises:
        UsageError: One of them cannot be loaded.
    """
    plugins.load(settings.plugins, settings.root, f"{settings.file}: plugins")
    if not request.shows:
        trust.tell_withheld(settings)


def cache_of(request: Request, settings: config.Settings) -> Cache | None:
    """Where results are kept from run to run; None with ``--no-cache``, or where nothing can be.

    Raises:
        UsageError: The settings name a folder outside of theirs.
    """
    if request.flag("no_cache"):
        return None
    given = request.flag("cache_dir")
    if given:
        folder = Path(given)
    elif settings.cache_dir:
        folder = settings.path("cache-dir", settings.cache_dir)
    else:
        folder = settings.root / _CACHE
        if not files.is_inside(folder, settings.root):
            return None  # .xladoctor is a link that somebody else may have made
    secret = trust.cache_secret()
    if secret is None:
        return None
    return Cache(folder, int(time.time() // _DAY), secret, plugins.files())


def run_of(request: Request, settings: config.Settings, cache: Cache | None) -> Run | None:
    """The run that the command line asks for, with what is known of it; None if it is another.

    Only runs that find and change nothing are known: all else needs what the files hold.
    """
    changing = ("fix", "fix_only", "diff", "add_noqa")
    if cache is None or request.from_stdin or any(request.flag(name) for name in changing):
        return None
    told = dataclasses.asdict(settings) | {"file": str(settings.file)}
    for name in ("output_format", "baseline", "cache_dir", "profile", "report"):
        del told[name]  # changes nothing that is found
    return cache.run([request.paths, _is_fixed(request), told], time.time_ns())


def _look_at_settings(request: Request, settings: config.Settings, run: Run) -> None:
    """Remember the files that may say what is asked of a run: settings, and what they name."""
    if settings.library is not None:
        _look_at(run, settings.root / settings.library)
    if _is_fixed(request):
        return
    folders = {Path(name) for name in run.search.seen()["folders"]}
    for name in request.paths or (".",):
        path = Path(name).resolve()
        folders.update((path, *path.parents))
    for folder in sorted(folders):
        for name in config.FILENAMES:
            _look_at(run, folder / name)


def _look_at(run: Run, path: Path) -> None:
    if run.search.exists(path):
        try:
            run.search.read(path, files.read_settings)
        except OSError:
            run.whole = False


def _is_fixed(request: Request) -> bool:
    """Whether no settings are looked for beside the files."""
    return bool(request.flag("isolated") or request.flag("config"))


def search_of(settings: config.Settings) -> Search:
    """How files are looked for under the settings."""
    from xladoctor.lint import discovery

    usual = discovery.DEFAULT_EXCLUDE if settings.exclude is None else settings.exclude
    return discovery.Search(
        exclude=(*usual, *settings.extend_exclude),
        force_exclude=settings.force_exclude,
        respect_gitignore=settings.respect_gitignore,
        root=settings.root,
    )


def paths_of(request: Request, settings: config.Settings, run: Run | None = None) -> list[Path]:
    """The files that the command line means.

    Args:
        request: The command line.
        settings: What counts.
        run: What is known of such a run, and remembers what is looked at.

    Raises:
        UsageError: A path does not exist.
    """
    names = run.names() if run is not None else None
    if names is not None:
        return [Path(name) for name in names]
    given = request.paths or (".",)

    def unreadable(folder: Path, error: OSError) -> None:
        if run is not None:
            run.whole = False
        lint_files.say(f"warning: {folder}: this folder was left out: {error.strerror or error}")

    from xladoctor.lint import discovery

    looked = run.search if run is not None else None
    found = discovery.discover(given, search_of(settings), unreadable, looked)
    if run is not None:
        run.whole = run.whole and bool(found)
        _look_at_settings(request, settings, run)
    if not found and any(Path(name).is_dir() for name in given):
        lint_files.say(f"warning: no Python files found under {', '.join(given)}")
    return found


def plans_of(
    request: Request, settings: config.Settings, paths: Sequence[Path], run: Run | None = None
) -> tuple[list[Path], dict[str, Plan]]:
    """Those of the files that are linted, and what the settings closest to each say, as in ruff.

    Args:
        request: The command line.
        settings: What counts where nothing is closer.
        paths: The files.
        run: Remembers what is looked at.

    Raises:
        UsageError: Settings closer to a file cannot be used.
    """
    kept: list[Path] = []
    plans: dict[str, Plan] = {}
    known: dict[Path | None, tuple[config.Settings, Plan]] = {}
    fixed = _is_fixed(request)
    given = set(request.paths)
    told = _Told(Looked(0) if run is None else run.search, str(_start(request)))

    @functools.cache
    def closest(folder: Path) -> tuple[config.Settings, Plan]:
        file = settings.file if fixed else config.find(folder)
        if file not in known:
            own = settings if file == settings.file else settings_of(request, folder)
            if own is not settings:
                load_plugins(request, own)
            known[file] = (own, plan_of(request, own))
        own, plan = known[file]
        return own, told.of(plan, str(folder))

    from xladoctor.lint import discovery

    for path in paths:
        own, plan = closest(path.parent)
        by_name = str(path) in given and not own.force_exclude
        if own is not settings and not by_name and discovery.is_excluded(path, search_of(own)):
            continue
        kept.append(path)
        plans[str(path)] = plan
    return kept, plans


def _library(settings: config.Settings) -> str:
    """The text of the project's own table of library names; "" if it has none."""
    if settings.library is None:
        return ""
    path = settings.root / settings.library
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{settings.file}: the library {path} cannot be read: {why}") from error
    from xladoctor.lint import library

    library.extended(text, str(path))
    return text
