"""What ``xladoctor lint`` does with its flags."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xladoctor import visible
from xladoctor.cli import lint_files, lint_plans
from xladoctor.errors import UsageError
from xladoctor.lint import plugins
from xladoctor.lint.asked import FileResult, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor import config
    from xladoctor.cli.lint_plans import Request
    from xladoctor.findings import Finding
    from xladoctor.lint.run import Plan
    from xladoctor.lint.sources import Source
    from xladoctor.report.lint_text import Lines


#: Formats that are one text; each is loaded when it is asked for.
_WHOLE = ("json", "gitlab", "sarif", "github", "junit")


def run(request: Request) -> int:
    """Run the command.

    Returns:
        0 nothing left, 1 findings (or a difference, with ``--diff``), 2 an internal error.

    Raises:
        UsageError: A path, flag or setting cannot be used.
    """
    flags = request.flags
    settings = lint_plans.settings_of(request)
    lint_plans.load_plugins(request, settings)
    if flags["show_settings"]:
        return _show_settings(lint_plans.plan_of(request, settings), settings)
    if flags["show_files"]:
        return _show_files(request, settings)
    lint = _lint_stdin if request.from_stdin else _lint_files
    results = lint(request, settings)
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


def _lint_files(request: Request, settings: config.Settings) -> list[FileResult]:
    """What there is to find in the files that the command line means."""
    cache = lint_plans.cache_of(request, settings)
    as_run = lint_plans.run_of(request, settings, cache)
    known = as_run.found() if as_run is not None else None
    if cache is not None and known is not None:
        cache.save()
        return [FileResult(name, Result(found), read=None) for name, found in known.items()]
    lint_plans.plan_of(request, settings)  # what is wrong with the flags is said first
    paths = lint_plans.paths_of(request, settings, as_run)
    paths, plans = lint_plans.plans_of(request, settings, paths, as_run)
    if cache is not None:
        cache.load_rules(plugins.files())
    if as_run is not None and len({plan.root for plan in plans.values()}) > 1:
        as_run.whole = False  # settings of folders inside may name files that nobody looked at
    own = (settings.plugins, settings.root)  # entry points too, where processes start afresh
    from xladoctor.lint import run as runner

    return list(runner.lint_files(paths, plans, request.flag("jobs"), own, cache, as_run))


def _show_files(request: Request, settings: config.Settings) -> int:
    lint_plans.plan_of(request, settings)
    if request.from_stdin:
        return 0
    paths = lint_plans.paths_of(request, settings)
    paths, _ = lint_plans.plans_of(request, settings, paths)
    for path in paths:
        click.echo(visible.guarded(visible.line(str(path))))
    return 0


def _lint_stdin(request: Request, settings: config.Settings) -> list[FileResult]:
    """The code from standard input, linked with what it imports from where its name says it is."""
    from xladoctor.lint import discovery
    from xladoctor.lint import run as runner

    plan = lint_plans.plan_beside(request, settings, Path(request.stdin_name))
    data = sys.stdin.buffer.read()
    name = request.stdin_name
    search = lint_plans.search_of(settings)
    named = request.flag("stdin_filename") is not None and search.force_exclude
    if named and discovery.is_excluded(Path(name), search):
        return [FileResult(name, Result(), data)]
    return [runner.lint_text(data, name, plan)]


def times(request: Request) -> dict[Path, float]:
    """When each file that is linted was last changed (seconds since the epoch)."""
    paths = lint_plans.paths_of(request, lint_plans.settings_of(request))
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
        from xladoctor.report import lint_text

        lint_files.say(lint_text.summary(findings, applied, unsafe=bool(flags["unsafe_fixes"])))
    if flags["exit_zero"]:
        return 0
    return 1 if findings or (applied and flags["exit_non_zero_on_fix"]) else 0


def _show_settings(plan: Plan, settings: config.Settings) -> int:
    values = dataclasses.asdict(settings)
    values["plugins"] = values.pop("withheld")
    from xladoctor.lint import discovery

    values["exclude"] = settings.exclude or discovery.DEFAULT_EXCLUDE
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
            with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
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
    statistics = bool(request.flags["statistics"])
    wanted = settings.output_format
    if wanted == "json" or (wanted in _WHOLE and not statistics):
        stream.write(_whole(wanted, findings, statistics=statistics))
        return
    from xladoctor.report import lint_text

    console = lint_files.console_on(stream)
    if statistics:
        lint_text.statistics(findings, console)
    elif wanted == "concise":
        lint_text.concise(findings, console)
    else:
        lint_text.full(findings, _lines(results), console)


def _whole(wanted: str, findings: Sequence[Finding], *, statistics: bool) -> str:
    """Findings in a format that is one text, with what a terminal would obey made visible."""
    if wanted == "json":
        from xladoctor.report import lint_json

        text = lint_json.statistics(findings) if statistics else lint_json.render(findings)
        return visible.in_json(text)
    if wanted == "sarif":
        from xladoctor.report import sarif

        return visible.in_json(sarif.of(findings, "xladoctor/lint/"))
    if wanted == "gitlab":
        from xladoctor.report import lint_gitlab

        return visible.in_json(lint_gitlab.render(findings))
    if wanted == "junit":
        from xladoctor.report import junit

        return junit.of(visible.of(findings), passed="no findings")
    from xladoctor.report import github

    return github.of(visible.of(findings))


def _lines(results: Sequence[FileResult]) -> Lines:
    from xladoctor.lint import sources

    by_name = {item.filename: item for item in results}

    @functools.cache
    def source(filename: str) -> Source:
        item = by_name.get(filename)
        data = (item.fixed or item.before) if item is not None else b""
        return sources.from_bytes(data, filename)

    @functools.cache
    def lines(filename: str, cell: int | None) -> Sequence[str]:
        found = source(filename)
        rows = found.rows
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
        return settings.path("baseline", settings.baseline)
    return None


def _with_lines(
    findings: Sequence[Finding], results: Sequence[FileResult]
) -> list[tuple[Finding, str]]:
    from xladoctor.lint import baseline

    lines = _lines(results)
    pairs = []
    for finding in findings:
        place = finding.locations[0]
        pairs.append((finding, baseline.line_of(finding, lines(place.filename, place.cell))))
    return pairs


def _write_baseline(path: Path, findings: Sequence[Finding], results: Sequence[FileResult]) -> int:
    from xladoctor.lint import baseline

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
    from xladoctor.lint import baseline

    fresh, gone = baseline.Baseline.read(path).new(_with_lines(findings, results))
    hidden = len(findings) - len(fresh)
    if hidden or gone:
        note = f"; {gone} of its entries no longer occur" if gone else ""
        lint_files.say(
            f"The baseline {path} hides {hidden} finding{'' if hidden == 1 else 's'}{note}."
        )
    return fresh
