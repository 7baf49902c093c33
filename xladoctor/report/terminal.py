"""The report for the terminal: verdict first, then counts, time, findings and compilations."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xladoctor import amounts
from xladoctor.report import device_terminal, sharding_terminal, terminal_many, words
from xladoctor.report.terminal_parts import (
    PART_MARKS,
    PART_STYLES,
    answer,
    bar,
    compilations,
    finding_in_full,
    heading,
    two_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from xladoctor.results import Report

#: Rows of the compilation table; the rest is summed up in a line.
_COMPILATIONS = 12
#: Cores up to which each has a row; a report of more is about how they differ, on one screen.
_CORES = 16


def render(report: Report, width: int = 100, *, color: bool = False) -> str:
    """The whole report as text of at most ``width`` columns."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_jupyter=False,  # a notebook is given the text, like anyone else
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="truecolor" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in _parts(report, width):
        console.print(part)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "\n".join(lines) + "\n"


def show(report: Report, console: Console) -> None:
    """Print the report on a console, at its width (notebooks, live displays)."""
    for part in _parts(report, console.width):
        console.print(part)


def _parts(report: Report, width: int) -> Iterable[RenderableType]:
    if len(report.cores) > _CORES:
        yield from terminal_many.parts(report, width)
        return
    yield answer(report)
    yield two_columns(words.counts(report))
    if words.shares(report.summary):
        yield heading("Where the time went")
        yield _time(report, width)
    if report.findings:
        yield heading(f"Findings ({len(report.findings)})")
        for number, finding in enumerate(report.findings, 1):
            yield finding_in_full(number, finding, report)
    if report.sharding is not None:
        yield from sharding_terminal.parts(report.sharding, width)
    if report.tpu:
        yield from device_terminal.parts(report.tpu, width)
    if report.compilations:
        yield heading("Compilations")
        yield compilations(report, width, _COMPILATIONS)
    if words.cores_differ(report):
        yield heading("Cores")
        yield _cores(report)
    if report.about or report.notes:
        yield heading("About this report")
        yield two_columns(list(report.about.items()))
        for note in report.notes:
            yield Padding(Text(f"Note: {note}", style="dim"), (0, 0, 0, 2))
    codes = sorted({finding.code for finding in report.findings})
    if codes:
        yield Text(f"\nRead more: xladoctor explain {codes[0]}", style="dim")


def _time(report: Report, width: int) -> Padding:
    shares = words.shares(report.summary)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for part, name, value, share in shares:
        label = Text(f"{PART_MARKS[part]} ", style=PART_STYLES[part]) + Text(name)
        table.add_row(label, words.seconds(value), amounts.percent(share))
    table.add_row(
        Text("  total per core", style="dim"), words.seconds(report.summary.seconds.total)
    )
    return Padding(Group(bar(report, width), table), (0, 0, 0, 2))


def _cores(report: Report) -> Padding:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in ("core", "steps", "typical step", "compilations", "host syncs", "fallbacks"):
        table.add_column(name, justify="right", no_wrap=True, min_width=cell_len(name))
    for core in report.cores:
        table.add_row(
            str(core.core),
            words.dash(core.steps),
            words.seconds(core.step_seconds_median),
            words.dash(core.compilations),
            words.dash(core.host_syncs),
            words.dash(core.fallbacks),
        )
    return Padding(table, (0, 0, 0, 2))
