"""The report for the terminal: verdict first, then counts, time, findings and compilations."""

from __future__ import annotations

import dataclasses
import io
import itertools
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from xladoctor import amounts
from xladoctor.findings import Severity
from xladoctor.report import device, device_terminal, sharding_terminal, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from xladoctor.findings import Finding
    from xladoctor.results import Compilation, Report

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
_PART_STYLES = {
    "execute": "green",
    "compile": "yellow",
    "host_sync": "red",
    "fallback": "magenta",
    "input_wait": "blue",
    "trace": "cyan",
    "core_wait": "bright_black",
    "transfer": "bright_blue",
    "other": "white",
}
#: Each part has its own mark, so that the bar can be read without colours.
_PART_MARKS = {
    "execute": "█",
    "compile": "▓",
    "host_sync": "▒",
    "fallback": "╬",
    "input_wait": "░",
    "trace": "▚",
    "core_wait": "◦",
    "transfer": "↑",
    "other": "·",
}
#: Rows of the compilation table; the rest is summed up in a line.
_COMPILATIONS = 12
#: The same in a report of so many cores that it is about how these differ.
_FEW_COMPILATIONS = 4
#: Cores up to which each has a row; of more there is one for those that did the same.
_CORES = 16
#: Rows of groups of cores.
_GROUPS = 8
#: Further places of a finding that are named.
_RELATED = 4


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
    yield _answer(report)
    yield _two_columns(words.counts(report))
    if words.shares(report.summary):
        yield _heading("Where the time went")
        yield _time(report, width)
    if report.findings:
        yield _heading(f"Findings ({len(report.findings)})")
        for number, finding in enumerate(report.findings, 1):
            yield _finding(number, finding, report)
    if report.sharding is not None:
        yield from sharding_terminal.parts(report.sharding, width)
    if report.tpu:
        yield from device_terminal.parts(report.tpu, width)
    if report.compilations:
        yield _heading("Compilations")
        yield _compilations(report, width)
    if words.cores_differ(report):
        yield _heading("Cores")
        yield _cores(report) if len(report.cores) <= _CORES else _alike(report)
    if report.about or report.notes:
        yield _heading("About this report")
        yield _two_columns(list(report.about.items()))
        for note in report.notes:
            yield Padding(Text(f"Note: {note}", style="dim"), (0, 0, 0, 2))
    codes = sorted({finding.code for finding in report.findings})
    if codes:
        yield Text(f"\nRead more: xladoctor explain {codes[0]}", style="dim")


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _answer(report: Report) -> Panel:
    summary = report.summary
    worst = min((f.severity for f in report.findings), key=lambda s: s.rank, default=None)
    sound = "bold green" if summary.conclusive else _STYLES[Severity.INFO]
    style = _STYLES[worst] if worst else sound
    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Verdict", Text(summary.verdict, style=style))
    table.add_row("Why", summary.why)
    table.add_row("Next", summary.next)
    return Panel(table, title="xladoctor", title_align="left", box=box.ROUNDED, border_style=style)


def _two_columns(rows: list[tuple[str, str]]) -> Padding:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return Padding(table, (0, 0, 0, 2))


def _time(report: Report, width: int) -> Padding:
    shares = words.shares(report.summary)
    columns = min(width, 100) - 4
    # Largest remainders: the blocks fill the bar exactly, and no part that is there vanishes
    # while there is room.
    whole = max(1.0, sum(share for _, _, _, share in shares))  # more only if a record is damaged
    exact = [share / whole * columns for _, _, _, share in shares]
    widths = [int(value) for value in exact]
    order = sorted(range(len(exact)), key=lambda i: exact[i] - widths[i], reverse=True)
    for index in order[: max(0, round(sum(exact)) - sum(widths))]:
        widths[index] += 1
    bar = Text(no_wrap=True, overflow="crop")
    for (part, _, _, _), blocks in zip(shares, widths, strict=True):
        bar.append(_PART_MARKS[part] * blocks, style=_PART_STYLES[part])
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for part, name, value, share in shares:
        label = Text(f"{_PART_MARKS[part]} ", style=_PART_STYLES[part]) + Text(name)
        table.add_row(label, words.seconds(value), amounts.percent(share))
    table.add_row(
        Text("  total per core", style="dim"), words.seconds(report.summary.seconds.total)
    )
    return Padding(Group(bar, table), (0, 0, 0, 2))


def _finding(number: int, finding: Finding, report: Report) -> Padding:
    head = Text(f"{number}. ", style="bold")
    head.append(finding.code, style=_STYLES[finding.severity])
    head.append(f" {finding.name}", style="bold")
    facts = []
    if finding.count is not None:
        facts.append(f"{finding.count:,}x")
    if finding.seconds is not None:
        facts.append(words.seconds(finding.seconds))
    if finding.tpu_seconds is not None:
        facts.append(f"{device.time(finding.tpu_seconds)} a step on a TPU")
    if finding.cores:
        numbers = words.cores(finding.cores, report.summary.cores)
        if numbers.startswith("all"):
            facts.append(f"{numbers} cores")
        else:
            facts.append(f"{'core' if numbers.isdigit() else 'cores'} {numbers}")
    if words.witnesses(finding):
        facts.append(words.witnesses(finding))
    if facts:
        head.append("  " + " · ".join(facts), style="dim")
    body = Table.grid(padding=(0, 1))
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    if finding.locations:
        where = words.place(finding.locations[0])
        if finding.locations[0].function:
            where += f" in {finding.locations[0].function}"
        body.add_row("at", where)
    body.add_row("", finding.message)
    others = words.related(finding, _RELATED)
    if others:
        body.add_row("see", ", ".join(others))
    if finding.suggestion:
        body.add_row("fix", finding.suggestion)
    return Padding(Group(head, Padding(body, (0, 0, 0, 3))), (0, 0, 0, 2))


def _compilations(report: Report, width: int) -> Group:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name, justify in (
        ("step", "right"),
        ("seconds", "right"),
        ("cores", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("ended by", overflow="fold", max_width=16)
    table.add_column("line", overflow="fold", max_width=max(18, width // 4))
    table.add_column("why it was new", overflow="fold", ratio=1)
    most = _COMPILATIONS if len(report.cores) <= _CORES else _FEW_COMPILATIONS
    shown, rest = _choose(report.compilations, most)
    for item, count in shown:
        many = f" in {count}" if count > 1 else ""
        table.add_row(
            "-" if item.step is None else str(item.step),
            words.seconds(item.seconds) + many,
            words.cores(item.cores, report.summary.cores),
            words.ended_by(item),
            words.tail(words.place(item.location), max(18, width // 4)),
            Text(words.cause(item, short=True), style="yellow" if item.after_warmup else ""),
        )
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2))]
    if rest:
        text = f"and {rest} more; all of them: --output-format json"
        parts.append(Padding(Text(text, style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


def _choose(items: tuple[Compilation, ...], most: int) -> tuple[list[tuple[Compilation, int]], int]:
    """The compilations worth a row: those after warm-up before the others, in their order.

    Returns:
        Each with the number of operations that it stands for, and how many are left out.
    """
    together = list(_together(items))
    if len(together) <= most:
        return together, 0
    ranked = sorted(together, key=lambda i: (not i[0].after_warmup, -(i[0].seconds or 0.0)))[:most]
    chosen = {id(item) for item, _ in ranked}
    shown = [one for one in together if id(one[0]) in chosen]
    return shown, len(items) - sum(count for _, count in shown)


def _together(items: tuple[Compilation, ...]) -> Iterator[tuple[Compilation, int]]:
    """Operations that were compiled one by one for the same step and reason as one."""

    def alike(item: Compilation) -> object:
        if item.trigger != "eager":
            return id(item)
        return item.step, item.cores, item.location, item.via, item.cause, item.after_warmup

    for _, group in itertools.groupby(items, alike):
        ones = list(group)
        known = [one.seconds for one in ones if one.seconds is not None]
        seconds = sum(known) if len(known) == len(ones) else None
        yield dataclasses.replace(ones[0], seconds=seconds), len(ones)


def _alike(report: Report) -> Group:
    """The cores by what they did: one row for those that agree, and one for each that does not."""
    hosts = any(group.hosts for group in report.alike)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("cores", overflow="fold", max_width=24)
    if hosts:
        table.add_column("host", overflow="fold", max_width=16)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("typical step", justify="right", no_wrap=True)
    table.add_column("what is different", overflow="fold", ratio=1)
    for group in report.alike[:_GROUPS]:
        many = len(group.cores) > 1
        numbers = words.cores(group.cores)
        table.add_row(
            f"{words.number(len(group.cores))} cores" if len(numbers) > 24 else numbers,
            *([_hosts(group.hosts)] if hosts else ()),
            words.dash(group.steps),
            words.seconds(group.step_seconds_median),
            group.differs or ("these agree" if many else "-"),
        )
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2))]
    rest = len(report.alike) - _GROUPS
    if rest > 0:
        text = f"and {rest} more groups; all of them: --output-format json"
        parts.append(Padding(Text(text, style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


def _hosts(names: tuple[str, ...]) -> str:
    text = words.hosts(names)
    return f"{words.number(len(names))} hosts" if len(text) > 16 else text


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
