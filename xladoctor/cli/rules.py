"""``xladoctor rules``: the table of all rules."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.catalogue import Page

_COLUMNS = ("code", "name", "severity", "fix", "found by", "summary")


@click.command(epilog="Read about one of them with 'xladoctor explain XLA101'.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How to show the table.",
)
def rules(output_format: str) -> int:
    """List all rules: what finds them and whether there is a fix."""
    from xladoctor import catalogue
    from xladoctor.cli.explain import as_json

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


def _row(page: Page) -> tuple[str, ...]:
    found_by = ", ".join(page.found_by)
    return (page.code, page.name, page.severity.value, page.fix, found_by, page.summary)


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
