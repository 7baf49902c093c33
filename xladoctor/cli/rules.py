"""``xladoctor rules``: the table of all rules."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.catalogue import Page

allow_plugins = click.option(
    "--allow-plugins",
    is_flag=True,
    help="Load the plugins that a configuration file names, even if its folder is not trusted.",
)

_COLUMNS = ("code", "name", "severity", "fix", "found by", "summary")


@click.group(
    invoke_without_command=True, epilog="Read about one of them with 'xladoctor explain XLA101'."
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How to show the table.",
)
@allow_plugins
@click.pass_context
def rules(context: click.Context, output_format: str, allow_plugins: bool) -> int | None:
    """List all rules: what finds them and whether there is a fix."""
    from xladoctor import catalogue
    from xladoctor.cli.pages import as_json, load_plugins

    if context.invoked_subcommand is not None:
        return None
    load_plugins(allow=allow_plugins)

    pages = catalogue.pages().values()
    if output_format == "json":
        facts = [{k: v for k, v in as_json(page).items() if k != "text"} for page in pages]
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
    elif output_format == "markdown":
        click.echo("\n".join(_markdown(pages)))
    elif sys.stdout.isatty():
        _render(pages)
    else:
        click.echo("\n".join(_plain(pages)))
    return 0


@rules.command(epilog="Exit code: 0 all pass, 1 a rule does not do what its page says, 2 bad flag.")
@allow_plugins
@click.argument("codes", nargs=-1, metavar="[CODES]...")
@click.option("--plugin", multiple=True, metavar="MODULE", help="Load these rules too.")
def test(codes: tuple[str, ...], plugin: tuple[str, ...], allow_plugins: bool) -> int:
    """Run the examples of rules' pages; of all rules of the project by default."""
    from pathlib import Path

    from xladoctor import catalogue
    from xladoctor.cli.pages import load_plugins
    from xladoctor.lint import plugins, selftest

    load_plugins(allow=allow_plugins)
    plugins.load(plugin, Path(), "--plugin")
    pages = [catalogue.page(code) for code in codes] or [
        page for code, page in catalogue.pages().items() if not code.startswith("XLA")
    ]
    if not pages:
        click.echo(
            "xladoctor: there is no rule to test: name plugins in [tool.xladoctor.lint] and give "
            "--allow-plugins, give --plugin MODULE, or the codes of rules",
            err=True,
        )
        return 2
    failed = 0
    for page in pages:
        wrong = selftest.check(page)
        failed += bool(wrong)
        click.echo(f"{'FAILED' if wrong else 'ok':6}  {page.code} {page.name}")
        for line in wrong:
            click.echo(f"        {line}")
    click.echo(f"{len(pages)} rules, {failed} failed.", err=True)
    return 1 if failed else 0


def _row(page: Page) -> tuple[str, ...]:
    found_by = ", ".join(page.found_by)
    off = "" if page.default else f" (off by default: --select {page.select or page.code})"
    return (page.code, page.name, page.severity.value, page.fix, found_by, page.summary + off)


def _plain(pages: Iterable[Page]) -> list[str]:
    """Columns of text, for pipes."""
    rows = [_COLUMNS, *(_row(page) for page in pages)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def _markdown(pages: Iterable[Page]) -> list[str]:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for page in pages:
        code, *rest = _row(page)
        lines.append(f"| {' | '.join([f'[{code}]({page.url})', *rest])} |")
    return lines


def _render(pages: Iterable[Page]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column in {"code", "name", "severity"})
    colours = {"error": "red", "warning": "yellow", "info": "cyan"}
    for page in pages:
        code, name, severity, *rest = _row(page)
        table.add_row(f"[bold]{code}[/]", name, f"[{colours[severity]}]{severity}[/]", *rest)
    Console().print(table)
