"""``xladoctor compare``: two runs (or pasted reports) side by side, with a gate for CI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from rich.console import Console

from xladoctor import diagnosis, readings
from xladoctor.cli import gates
from xladoctor.cli.report import open_stdin, output_options, terminal_options, write
from xladoctor.cli.tpu import ask, chosen, tpu_options
from xladoctor.diagnosis import comparison as comparing
from xladoctor.errors import UsageError
from xladoctor.report import comparison as shown
from xladoctor.store import runs as store

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    short_help="What got better and worse between two runs.",
    epilog="Exit code: 0 compared, 1 something is worse by more than --fail-if-worse allows, "
    "2 a source cannot be read, or what the gate needs was not measured.",
)
@click.argument("before")
@click.argument("after")
@click.option(
    "--fail-if-worse",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 if a figure grew by more than PERCENT (seconds of simulated cores apart), or "
    "an error is new.",
)
@tpu_options
@output_options(shown.FORMATS)
def compare(
    before: str,
    after: str,
    fail_if_worse: float | None,
    tpu: str | None,
    tpu_time_limit: float,
    tpu_graphs: int,
    tpu_engine: str | None,
    jobs: int,
    output_format: str,
    output_file: Path | None,
) -> int:
    """Show what got better and worse from BEFORE to AFTER.

    Each is a source as for 'xladoctor report': a run directory, a text with metrics reports or
    PT_XLA_DEBUG output, JSON of metric_data(), or - for standard input. Counts are held against
    each other per step where both have steps; a step's time counts as changed only if the
    interquartile ranges of the two runs' steps do not overlap.
    """
    if before == after == readings.STDIN:
        raise UsageError("standard input (-) is given twice: it can be read only once")
    wanted = chosen(tpu, tpu_time_limit, tpu_graphs, tpu_engine, jobs)
    console = Console(stderr=True, highlight=False)
    reports = []
    for source in (before, after):
        stdin = open_stdin() if source == readings.STDIN else None
        read = store.load([source], stdin, jobs=os.cpu_count() or 1)
        costs, notes = ask(wanted, read, console)
        reports.append(diagnosis.diagnose(read, tpu=costs, notes=notes))
    result = comparing.compare(*reports)
    gate = None if fail_if_worse is None else comparing.judge(result, fail_if_worse)
    width, color = terminal_options(output_file)
    text = shown.render(result, (before, after), output_format, gate=gate, width=width, color=color)
    write(text, output_file)
    if gate is None:
        return 0
    return gates.tell(gate, broken="worse", unknown="not judged")
