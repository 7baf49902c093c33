"""``xladoctor report``: recorded runs, pasted metrics reports and debug output, diagnosed."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from rich.console import Console

from xladoctor.capture import rundir
from xladoctor.cli import boundary
from xladoctor.cli.tpu import ask, chosen, tpu_options
from xladoctor.errors import SourceError, UsageError
from xladoctor.page import with_page
from xladoctor.report import FORMATS, render

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.results import Report

_Command = TypeVar("_Command", bound="Callable[..., Any]")


def output_options(formats: Sequence[str]) -> Callable[[_Command], _Command]:
    """The options of a command that shows one result: in which form, and where."""
    in_form = click.option(
        "--output-format",
        type=click.Choice(formats),
        default="full",
        show_default=True,
        help="How to show the result.",
    )
    into_file = click.option(
        "-o",
        "--output-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write to this file instead of standard output.",
    )
    return lambda command: in_form(into_file(command))


def html_option(command: _Command) -> _Command:
    """The option "--html", for commands that have a run."""
    return click.option(
        "--html",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also write the report as one self-contained HTML page, with the lines of the source "
        "that cost time.",
    )(command)


def trace_option(command: _Command) -> _Command:
    """The option "--trace", for commands that have a run."""
    return click.option(
        "--trace",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also write the steps of each core as a trace for Perfetto (ui.perfetto.dev).",
    )(command)


def write_trace(result: Report, trace: Path | None) -> None:
    """Write the trace, if one is asked for.

    Raises:
        UsageError: There is nothing to draw, or the file cannot be written.
    """
    if trace is not None:
        from xladoctor.report import trace as chrome

        write(chrome.render(result), trace)


@click.command(short_help="Diagnose a recorded run or a pasted metrics report.")
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("--last", is_flag=True, help=f"Take the newest run directory under {rundir.RUNS}.")
@tpu_options
@html_option
@trace_option
@output_options(FORMATS)
def report(
    sources: tuple[str, ...],
    last: bool,
    tpu: str | None,
    tpu_time_limit: float,
    tpu_graphs: int,
    tpu_engine: str | None,
    jobs: int,
    html: Path | None,
    trace: Path | None,
    output_format: str,
    output_file: Path | None,
) -> int:
    """Diagnose recorded runs and pasted text.

    SOURCE is a run directory, a text with torch_xla metrics reports or PT_XLA_DEBUG output (logs
    and notebooks too, however it was wrapped or cut), JSON of metric_data(), or - for standard
    input. Several sources are the cores of one run; several reports in one text are a series.
    """
    from xladoctor import diagnosis, readings
    from xladoctor.store import runs as store

    if last:
        sources = (*sources, str(rundir.latest()))
    if not sources:
        raise UsageError("no source given: name a run directory or a text, or use --last")
    if sources.count(readings.STDIN) > 1:
        raise UsageError("standard input (-) is given more than once: it can be read only once")
    stdin = open_stdin() if readings.STDIN in sources else None
    wanted = chosen(tpu, tpu_time_limit, tpu_graphs, tpu_engine, jobs)
    console = Console(stderr=True, highlight=False)

    def told(said: str) -> None:
        console.print(f"xladoctor: {said}", soft_wrap=True, markup=False)

    read = store.load(sources, stdin, told=told, jobs=os.cpu_count() or 1)
    costs, notes = ask(wanted, read, console)
    result = diagnosis.diagnose(read, tpu=costs, notes=notes)
    write_trace(result, trace)
    if html is not None or output_format == "html":
        result = with_page(result, read)
    if html is not None:
        write(render(result, "html"), html)
    width, color = terminal_options(output_file)
    write(render(result, output_format, width=width, color=color), output_file)
    return 0


def terminal_options(output_file: Path | None = None) -> tuple[int, bool]:
    """Width and colour for :func:`xladoctor.report.render`: NO_COLOR, FORCE_COLOR and tty count."""
    to_terminal = output_file is None and sys.stdout.isatty()
    color = bool(os.environ.get("FORCE_COLOR")) or (
        to_terminal and os.environ.get("TERM") != "dumb"
    )
    if os.environ.get("NO_COLOR"):
        color = False
    width = shutil.get_terminal_size((100, 24)).columns
    return max(60, min(width, 120)), color


def write(text: str, output_file: Path | None) -> None:
    """Write a rendered report to a file, or to standard output.

    Raises:
        UsageError: The file cannot be written.
    """
    if output_file is None:
        try:
            click.echo(text, nl=False, color=True)  # whether there is colour is decided above
        except BrokenPipeError:
            boundary.leave_stdout()  # ``| head``: what else is to be written or judged still is
        return
    try:
        output_file.parent.mkdir(parents=True, exist_ok=True)
        output_file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{output_file}: this cannot be written ({error.strerror})") from error


def open_stdin() -> TextIO:
    """Standard input as text, however long it is: it is read line by line."""
    stream = sys.stdin.buffer
    start = stream.peek(8192)[:8192] if isinstance(stream, io.BufferedReader) else b""
    encoding = "utf-8-sig"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in start:
        raise SourceError("standard input: this is binary, not text: pipe the report's text in")
    return io.TextIOWrapper(stream, encoding=encoding, errors="replace")
