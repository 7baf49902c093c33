"""What ``xladoctor lint`` does with its flags."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from xladoctor import config
from xladoctor.cli import lint_files
from xladoctor.errors import UsageError
from xladoctor.lint import baseline, engine, plugins, sources
from xladoctor.lint import run as runner
from xladoctor.lint.model.file import NEWEST_TORCH_XLA
from xladoctor.report import junit, lint_github, lint_gitlab, lint_json, lint_sarif, lint_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.run import FileResult, Plan


#: Formats that are one text.
_WHOLE: Mapping[str, Callable[[Sequence[Finding]], str]] = {
    "github": lint_github.render,
    "gitlab": lint_gitlab.render,
    "junit": functools.partial(junit.of, passed="no findings"),
    "sarif": lint_sarif.render,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """The command line, codes already checked; ``flags`` by their Python names."""

    paths: tuple[str, ...]
    select: tuple[str, ...] | None
    ignore: tuple[str, ...] | None
    extend_select: tuple[str, ...] | None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...]
    flags: Mapping[str, Any]
    fixable: tuple[str, ...] | None = None
    unfixable: tuple[str, ...] | None = None

    @property
    def fixes(self) -> bool:
        """Whether files are changed."""
        return bool(self.flags["fix"] or self.flags["fix_only"]) and not self.flags["diff"]

    @property
    def from_stdin(self) -> bool:
        """Whether the code comes from standard input."""
        return "-" in self.paths


def run(request: Request) -> int:
    """Run the command.

    Returns:
        0 nothing left, 1 findings (or a difference, with ``--diff``), 2 an internal error.

    Raises:
        UsageError: A path, flag or setting cannot be used.
    """
    flags = request.flags
    settings = _settings(request)
    _load_plugins(settings)
    plan = _plan(request, settings)
    if flags["show_settings"]:
        return _show_settings(plan, settings)
    paths, plans = ([], {}) if request.from_stdin else _paths_and_plans(request, settings)
    if flags["show_files"]:
        for path in paths:
            click.echo(str(path))
        return 0
    if flags["no_cache"] or flags["cache_dir"]:
        lint_files.say(
            "note: nothing is cached in this version, --no-cache and --cache-dir change nothing"
        )
    if request.from_stdin:
        name = flags["stdin_filename"] or "-"
        results = [plan.run(sys.stdin.buffer.read(), name)]
    else:
        own = (settings.plugins, settings.root) if settings.plugins else None
        results = list(runner.lint_files(paths, plans, flags["jobs"], own))
    for result in results:
        for failure in result.result.failures:
            lint_files.say(f"xladoctor: {failure}")
        if not result.stable:
            lint_files.say(
                f"xladoctor: {result.filename}: fixes keep changing the file, stopped trying"
            )
    failed = any(result.result.failures for result in results)
    code = _act(request, settings, results)
    return 2 if failed else code


def times(request: Request) -> dict[Path, float]:
    """When each file that is linted was last changed (seconds since the epoch)."""
    paths = _paths(request, _settings(request))
    return {path: path.stat().st_mtime for path in paths if path.exists()}


def _act(request: Request, settings: config.Settings, results: Sequence[FileResult]) -> int:
    flags = request.flags
    if flags["add_noqa"]:
        return lint_files.add_noqa(results)
    if flags["diff"]:
        return lint_files.diff(results)
    applied = lint_files.write(results, to_stdout=request.from_stdin and bool(request.fixes))
    if flags["show_fixes"]:
        lint_files.show_fixes(results)
    if flags["fix_only"]:
        lint_files.say(
            f"Fixed {applied} finding{'' if applied == 1 else 's'}." if applied else "No fixes."
        )
        return 1 if applied and flags["exit_non_zero_on_fix"] else 0
    findings = [finding for result in results for finding in result.result.findings]
    if flags["write_baseline"]:
        return _write_baseline(Path(flags["write_baseline"]), findings, results)
    known = _baseline_path(request, settings)
    if known is not None:
        findings = _without_known(known, findings, results)
    _show(request, settings, findings, results)
    if settings.output_format in {"full", "concise"}:
        lint_files.say(lint_text.summary(findings, applied, unsafe=bool(flags["unsafe_fixes"])))
    if flags["exit_zero"]:
        return 0
    return 1 if findings or (applied and flags["exit_non_zero_on_fix"]) else 0


# Settings


def _settings(request: Request, folder: Path | None = None) -> config.Settings:
    """The settings that count in a folder (by default: the one that holds everything given)."""
    flags = request.flags
    if flags["isolated"] and flags["config"]:
        raise UsageError("--isolated and --config exclude each other: leave one out")
    settings = config.Settings()
    if flags["config"]:
        settings = config.read(Path(flags["config"]))
    elif not flags["isolated"]:
        found = config.find(_start(request) if folder is None else folder)
        settings = config.read(found) if found is not None else settings
    changes: dict[str, Any] = {}
    if request.select is not None:
        # As in ruff: a selection on the command line starts afresh.
        changes.update(select=request.select, extend_select=(), ignore=())
    for name in ("ignore", "extend_select", "per_file_ignores"):
        value = getattr(request, name)
        if value:
            changes[name] = (*changes.get(name, getattr(settings, name)), *value)
    for name in ("exclude", "extend_exclude"):
        if flags[name] is not None:
            changes[name] = tuple(item.strip() for item in flags[name].split(",") if item.strip())
    for name in ("output_format", "target_torch_xla"):
        if flags[name] is not None:
            changes[name] = flags[name]
    if flags["force_exclude"]:
        changes["force_exclude"] = True
    return dataclasses.replace(settings, **changes)


def _start(request: Request) -> Path:
    """The folder from which settings are looked for: the one that holds everything given."""
    names = [name for name in request.paths if name != "-"]
    if request.from_stdin and request.flags["stdin_filename"]:
        names.append(request.flags["stdin_filename"])
    if not names:
        return Path()
    folders = [path if path.is_dir() else path.parent for path in map(Path, names)]
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))


def _plan(request: Request, settings: config.Settings) -> Plan:
    flags = request.flags
    target = NEWEST_TORCH_XLA
    if settings.target_torch_xla is not None:
        target = config.version(settings.target_torch_xla, "--target-torch-xla")  # type: ignore[assignment]
    fix = "no"
    if request.fixes or flags["diff"]:
        fix = "unsafe" if flags["unsafe_fixes"] else "safe"
    codes = runner.chosen_codes(settings.select, settings.extend_select, settings.ignore)
    fixable = None
    if request.fixable is not None or request.unfixable is not None:
        fixable = runner.chosen_codes(request.fixable, (), request.unfixable or ())
    return runner.Plan(
        engine.LintOptions(codes, target), settings.per_file_ignores, settings.root, fix, fixable
    )


def _load_plugins(settings: config.Settings) -> None:
    plugins.load(settings.plugins, settings.root, f"{settings.file}: plugins")


def _search(settings: config.Settings) -> sources.Search:
    usual = sources.DEFAULT_EXCLUDE if settings.exclude is None else settings.exclude
    return sources.Search(
        exclude=(*usual, *settings.extend_exclude),
        force_exclude=settings.force_exclude,
        respect_gitignore=settings.respect_gitignore,
        root=settings.root,
    )


def _paths_and_plans(
    request: Request, settings: config.Settings
) -> tuple[list[Path], dict[str, Plan]]:
    """The files to lint, each with what the settings closest to it say, as in ruff."""
    paths: list[Path] = []
    plans: dict[str, Plan] = {}
    known: dict[Path | None, tuple[config.Settings, Plan]] = {}
    fixed = bool(request.flags["isolated"] or request.flags["config"])
    given = set(request.paths)

    @functools.cache
    def closest(folder: Path) -> tuple[config.Settings, Plan]:
        file = settings.file if fixed else config.find(folder)
        if file not in known:
            own = settings if file == settings.file else _settings(request, folder)
            _load_plugins(own)
            known[file] = (own, _plan(request, own))
        return known[file]

    for path in _paths(request, settings):
        own, plan = closest(path.parent)
        by_name = str(path) in given and not own.force_exclude
        if own is not settings and not by_name and sources.is_excluded(path, _search(own)):
            continue
        paths.append(path)
        plans[str(path)] = plan
    return paths, plans


def _paths(request: Request, settings: config.Settings) -> list[Path]:
    given = request.paths or (".",)
    found = sources.discover(given, _search(settings))
    if not found and any(Path(name).is_dir() for name in given):
        lint_files.say(f"warning: no Python files found under {', '.join(given)}")
    return found


def _show_settings(plan: Plan, settings: config.Settings) -> int:
    values = dataclasses.asdict(settings)
    values["exclude"] = settings.exclude or sources.DEFAULT_EXCLUDE
    values["target_torch_xla"] = ".".join(str(part) for part in plan.options.target)
    values["rules"] = sorted(plan.options.codes or ())
    for name, value in values.items():
        text = str(value) if isinstance(value, Path) else value
        click.echo(f"{name.replace('_', '-')} = {text!r}")
    return 0


# Output


def _show(
    request: Request,
    settings: config.Settings,
    findings: Sequence[Finding],
    results: Sequence[FileResult],
) -> None:
    output = request.flags["output_file"]
    if output:
        path = Path(output)
        try:
            with path.open("w", encoding="utf-8") as stream:
                _render(request, settings, findings, results, stream)
        except OSError as error:
            raise UsageError(f"--output-file {output}: {error.strerror}") from error
    elif request.from_stdin and request.fixes:
        # The fixed code takes standard output, as in ruff.
        _render(request, settings, findings, results, sys.stderr)
    else:
        _render(request, settings, findings, results, sys.stdout)


def _render(
    request: Request,
    settings: config.Settings,
    findings: Sequence[Finding],
    results: Sequence[FileResult],
    stream: Any,
) -> None:
    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    wanted = settings.output_format
    if wanted == "json":
        statistics = request.flags["statistics"]
        text = lint_json.statistics(findings) if statistics else lint_json.render(findings)
        stream.write(text)
    elif request.flags["statistics"]:
        lint_text.statistics(findings, console)
    elif wanted in _WHOLE:
        stream.write(_WHOLE[wanted](findings))
    elif wanted == "concise":
        lint_text.concise(findings, console)
    else:
        lint_text.full(findings, _lines(results), console)


def _lines(results: Sequence[FileResult]) -> lint_text.Lines:
    contents = {item.filename: item.fixed or item.before for item in results}

    @functools.cache
    def source(filename: str) -> sources.Source:
        return sources.from_bytes(contents.get(filename, b""), filename)

    @functools.cache
    def lines(filename: str, cell: int | None) -> Sequence[str]:
        found = source(filename)
        rows = found.text.splitlines()
        if cell is None:
            return rows
        place = next((item for item in found.cells or () if item.index == cell), None)
        return rows[place.first - 1 : place.first - 1 + place.rows] if place else ()

    return lines


# Baseline


def _baseline_path(request: Request, settings: config.Settings) -> Path | None:
    if request.flags["baseline"]:
        return Path(request.flags["baseline"])
    if settings.baseline is not None:
        return settings.root / settings.baseline
    return None


def _with_lines(
    findings: Sequence[Finding], results: Sequence[FileResult]
) -> list[tuple[Finding, str]]:
    lines = _lines(results)
    pairs = []
    for finding in findings:
        place = finding.locations[0]
        pairs.append((finding, baseline.line_of(finding, lines(place.filename, place.cell))))
    return pairs


def _write_baseline(path: Path, findings: Sequence[Finding], results: Sequence[FileResult]) -> int:
    known = baseline.Baseline(path)
    for finding, line in _with_lines(findings, results):
        known.add(finding, line)
    try:
        known.write()
    except OSError as error:
        raise UsageError(f"--write-baseline {path}: {error.strerror}") from error
    lint_files.say(f"Wrote {len(findings)} finding{'' if len(findings) == 1 else 's'} to {path}.")
    return 0


def _without_known(
    path: Path, findings: Sequence[Finding], results: Sequence[FileResult]
) -> list[Finding]:
    fresh, gone = baseline.Baseline.read(path).new(_with_lines(findings, results))
    hidden = len(findings) - len(fresh)
    if hidden or gone:
        note = f"; {gone} of its entries no longer occur" if gone else ""
        lint_files.say(
            f"The baseline {path} hides {hidden} finding{'' if hidden == 1 else 's'}{note}."
        )
    return fresh
