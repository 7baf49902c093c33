"""``xladoctor lint``: flags in, findings out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

#: Flags that are lists, separated by commas.
_LISTS = (
    "select", "ignore", "extend_select", "fixable", "unfixable", "exclude", "extend_exclude",
)  # fmt: skip
_FORMATS = click.Choice(["full", "concise", "json", "github", "gitlab", "junit", "sarif"])
_TARGETS = click.Choice(["torch_xla", "torch_tpu", "torch_neuron", "torchax"])


@click.command(
    epilog="Exit code: 0 nothing left, 1 findings, 2 bad flag, bad configuration, internal error."
)
@click.argument("paths", nargs=-1, metavar="[PATHS]... | -")
@click.option("--fix", is_flag=True, help="Apply the safe fixes.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: apply unsafe fixes too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--fix-only", is_flag=True, help="Apply fixes and report nothing; implies --fix.")
@click.option("--show-fixes", is_flag=True, help="List the fixes that were made.")
@click.option("--fixable", multiple=True, metavar="CODES", help="Fix only these.")
@click.option("--unfixable", multiple=True, metavar="CODES", help="Do not fix these.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Report only these (XLA101, or XLA1 for a family).",
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Do not report these.")
@click.option("--extend-select", multiple=True, metavar="CODES", help="Report these as well.")
@click.option(
    "--per-file-ignores",
    multiple=True,
    metavar="PATTERN:CODES",
    help="Do not report CODES in files that match; may be given several times.",
)
@click.option("--output-format", type=_FORMATS, help="How to show findings.  [default: full]")
@click.option("-o", "--output-file", type=click.Path(dir_okay=False), help="Write them to a file.")
@click.option("--statistics", is_flag=True, help="Show how many findings each rule has.")
@click.option("--show-files", is_flag=True, help="List the files that would be linted.")
@click.option("--show-settings", is_flag=True, help="Show the settings that would be used.")
@click.option("--add-noqa", is_flag=True, help="Add '# noqa: CODE' to every line with a finding.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERNS",
    help="Leave these out instead of the usual ones.",
)
@click.option(
    "--extend-exclude", multiple=True, metavar="PATTERNS", help="Leave these out as well."
)
@click.option("--force-exclude", is_flag=True, help="Leave them out even when given by name.")
@click.option("--config", type=click.Path(), help="Read the settings from this TOML file.")
@click.option("--isolated", is_flag=True, help="Ignore all configuration files.")
@click.option("-n", "--no-cache", is_flag=True, help="Find everything anew and keep nothing.")
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Where results are kept.  [default: .xladoctor/cache beside the settings]",
)
@click.option(
    "--allow-plugins",
    is_flag=True,
    help="Run the plugins that a configuration file names, even if its folder is not trusted.",
)
@click.option("--stdin-filename", metavar="NAME", help="What to call the code read from '-'.")
@click.option("-e", "--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 if something was fixed.")
@click.option("-w", "--watch", is_flag=True, help="Lint again whenever a file changes.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="How many processes to use.")
@click.option("--baseline", metavar="FILE", help="Show only findings that FILE does not know.")
@click.option("--write-baseline", metavar="FILE", help="Write today's findings to FILE.")
@click.option(
    "--target",
    type=_TARGETS,
    help="The devices that the code is for, or is to be moved to (default: as it is written).",
)
@click.option("--target-torch-xla", metavar="VERSION", help="torch_xla version of the code.")
def lint(paths: tuple[str, ...], **flags: object) -> int:
    """Find what makes PyTorch/XLA training slow, wrong or stuck by reading the code.

    PATHS are Python files, notebooks and folders (the current one by default); '-' reads standard
    input.
    """
    from xladoctor.cli import lint_command, lint_plans
    from xladoctor.config import selectors
    from xladoctor.errors import UsageError

    for name in _LISTS:  # given several times they add up, as in ruff
        several = flags[name]
        assert isinstance(several, tuple)
        flags[name] = ",".join(several) if several else None

    def codes(name: str) -> tuple[str, ...] | None:
        text = flags[name]
        flag = "--" + name.replace("_", "-")
        return selectors(text, flag) if isinstance(text, str) else None

    per_file = []
    given = flags["per_file_ignores"]
    assert isinstance(given, tuple)
    for item in given:
        pattern, colon, listed = item.rpartition(":")
        if not colon or not pattern:
            raise UsageError(f"--per-file-ignores {item}: write it as PATTERN:CODES")
        per_file.append((pattern, selectors(listed, "--per-file-ignores")))
    request = lint_plans.Request(
        paths=paths,
        select=codes("select"),
        ignore=codes("ignore"),
        extend_select=codes("extend_select"),
        fixable=codes("fixable"),
        unfixable=codes("unfixable"),
        per_file_ignores=tuple(per_file),
        flags=flags,
    )
    if flags["watch"]:
        return _watch(request)
    return lint_command.run(request)


def _watch(request: object) -> int:
    """Run again whenever a linted file changes, until Ctrl-C."""
    import time

    from xladoctor.cli import lint_command, lint_plans

    assert isinstance(request, lint_plans.Request)
    if "-" in request.paths:
        raise click.UsageError("--watch cannot watch standard input")
    seen: dict[Path, float] = {}
    try:
        while True:
            now = lint_command.times(request)
            if now != seen:
                seen = now
                click.clear()
                lint_command.run(request)
                click.echo("Watching for changes, Ctrl-C to stop.", err=True)
                sys.stdout.flush()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
