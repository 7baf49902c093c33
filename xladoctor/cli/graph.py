"""``xladoctor graph``: the graphs of a recorded run as readable text, and what differs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xladoctor.cli.report import write
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from xladoctor.diagnosis.graph_view import Graphs


@click.command(
    short_help="Show a recorded graph, or what differs from another.",
    epilog="Without NUMBER all graphs of the run are listed; the numbers are those of the report.",
)
@click.argument("run", metavar="RUN")
@click.argument("number", type=int, required=False)
@click.option(
    "--diff", "other", type=int, metavar="OTHER",
    help="Show what differs from graph OTHER: operations added and removed, shapes changed.",
)  # fmt: skip
@click.option(
    "--output-format", type=click.Choice(("text", "json", "hlo")), default="text",
    show_default=True, help="hlo is the graph as XLA was given it.",
)  # fmt: skip
@click.option(
    "-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of standard output.",
)  # fmt: skip
def graph(
    run: str, number: int | None, other: int | None, output_format: str, output_file: Path | None
) -> int:
    """Show graph NUMBER of RUN: what XLA was given, in torch's operations under their source lines.

    RUN is a run directory of 'xladoctor profile', or the address of a run of several hosts.
    """
    from xladoctor.diagnosis.graph_view import Graphs
    from xladoctor.report import graph as shown
    from xladoctor.store import runs

    if not runs.is_shared(run) and not Path(run).is_dir():
        raise UsageError(f"{run}: this is no run directory: graphs are kept in those only")
    graphs = Graphs(runs.load([run], jobs=os.cpu_count() or 1))
    if number is None:
        if other is not None or output_format != "text":
            raise UsageError("say which graph: xladoctor graph RUN NUMBER [--diff OTHER]")
        if not graphs.compilations:
            raise UsageError(f"{run}: this run has no graphs: nothing was compiled in it")
        write(shown.listed(graphs.compilations, graphs.kept), output_file)
        return 0
    write(_text(graphs, number, other, output_format), output_file)
    return 0


def _text(graphs: Graphs, number: int, other: int | None, output_format: str) -> str:
    """A graph, or what differs from another, in one of the formats."""
    from xladoctor.report import graph as shown

    if output_format == "hlo":
        if other is None:
            return graphs.hlo(number)
        return shown.hlo_diff(graphs.hlo(other), graphs.hlo(number), (other, number))
    view = graphs.view(number)
    diff = None if other is None else graphs.diff(other, number)
    if output_format == "json":
        return shown.as_json(view, diff)
    if other is None or diff is None:
        return shown.text(view)
    return shown.diff_text(diff, graphs.view(other), view)
