"""``xladoctor query``: SQL over the columns of a pod's run."""

from __future__ import annotations

import csv
import io
import json

import click
from rich import box
from rich.console import Console
from rich.table import Table

from xladoctor import visible
from xladoctor.cli.report import terminal_options
from xladoctor.errors import UsageError
from xladoctor.store import query as asking
from xladoctor.store.locations import located
from xladoctor.store.runs import is_shared


@click.command(short_help="Ask a pod's run in SQL (DuckDB).")
@click.argument("run", metavar="RUN")
@click.argument("sql")
@click.option(
    "--output-format", type=click.Choice(("full", "csv", "json")), default="full",
    show_default=True, help="How to show the rows.",
)  # fmt: skip
def query(run: str, sql: str, output_format: str) -> int:
    """Ask the tables steps, reads, fallbacks and compilations of RUN a question in SQL.

    'xladoctor compact' has made them; docs/queries.md shows examples, and other engines.
    """
    if not is_shared(run):
        raise UsageError(f"{run}: no run of several hosts: give what 'profile -o' was given")
    answer = asking.ask(located(run), sql)
    if output_format == "json":
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        click.echo(json.dumps(rows, default=str))
    elif output_format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([answer.columns, *answer.rows])
        click.echo(out.getvalue(), nl=False)
    else:
        table = Table(*answer.columns, box=box.SIMPLE_HEAD)
        for row in answer.rows:
            table.add_row(*["-" if value is None else visible.of(_short(value)) for value in row])
        Console(width=terminal_options()[0], markup=False, highlight=False).print(table)
    return 0


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
