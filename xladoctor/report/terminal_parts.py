"""What all terminal reports of runs are made of: the answer, bars, findings, compilations."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from xladoctor.findings import Severity
from xladoctor.report import device, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from xladoctor.findings import Finding
    from xladoctor.results import Compilation, Report

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
PART_STYLES = {
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
PART_MARKS = {
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

#: Further places of a finding that are named.
_RELATED = 4


#: Columns of the numbers of cores before they are counted instead, where rows have one line.
_CORES_WIDE = 15
#: Columns of the table of compilations before its last one.
_BEFORE_WHY = 65


def heading(text: str) -> Text:
    """What a part of the report begins with."""
    return Text(f"\n{text}", style="bold")


def answer(report: Report) -> Panel:
    """The verdict, why, and what to do next."""
    summary = report.summary
    worst = min((f.severity for f in report.findings), key=lambda s: s.rank, default=None)
    sound = "bold green" if summary.conclusive else STYLES[Severity.INFO]
    style = STYLES[worst] if worst else sound
    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Verdict", Text(summary.verdict, style=style))
    table.add_row("Why", summary.why)
    table.add_row("Next", summary.next)
    return Panel(table, title="xladoctor", title_align="left", box=box.ROUNDED, border_style=style)


def two_columns(rows: list[tuple[str, str]]) -> Padding:
    """Labels and texts."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(label, text)
    return Padding(table, (0, 0, 0, 2))


def bar(report: Report, width: int) -> Text:
    """Where the time went, as blocks."""
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
    drawn = Text(no_wrap=True, overflow="crop")
    for (part, _, _, _), blocks in zip(shares, widths, strict=True):
        drawn.append(PART_MARKS[part] * blocks, style=PART_STYLES[part])
    return drawn


def head(number: int, finding: Finding, report: Report) -> Text:
    """The first line of a finding: its code, and how much of what."""
    line = Text(f"{number}. ", style="bold")
    line.append(finding.code, style=STYLES[finding.severity])
    line.append(f" {finding.name}", style="bold")
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
        line.append("  " + " · ".join(facts), style="dim")
    return line


def finding_in_full(
    number: int, finding: Finding, report: Report, *, told: bool = False
) -> Padding:
    """A finding with its places, message and fix.

    Args:
        number: Its place among the findings.
        finding: The finding.
        report: Whose it is.
        told: Whether the answer has said its message and fix already.
    """
    body = Table.grid(padding=(0, 1))
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    if finding.locations:
        where = words.place(finding.locations[0])
        if finding.locations[0].function:
            where += f" in {finding.locations[0].function}"
        body.add_row("at", where)
    if not told:
        body.add_row("", finding.message)
    others = words.related(finding, _RELATED)
    if others:
        body.add_row("see", ", ".join(others))
    if finding.suggestion and not told:
        body.add_row("fix", finding.suggestion)
    return Padding(Group(head(number, finding, report), Padding(body, (0, 0, 0, 3))), (0, 0, 0, 2))


def compilations(report: Report, width: int, most: int, *, one_line: bool = False) -> Group:
    """The table of new graphs.

    Args:
        report: Whose they are.
        width: Columns of the terminal.
        most: Rows; the rest is summed up in a line.
        one_line: Whether a row may take no second line: what ended the graph is left out, and long
            texts are cut.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name, justify in (
        ("step", "right"),
        ("seconds", "right"),
        ("cores", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    if not one_line:
        table.add_column("ended by", overflow="fold", max_width=16)
    table.add_column("line", overflow="fold", max_width=max(18, width // 4))
    table.add_column("why it was new", overflow="fold", ratio=1)
    shown, rest = _choose(report.compilations, most)
    for item, count in shown:
        many = f" in {count}" if count > 1 else ""
        why = Text(words.cause(item, short=True), style="yellow" if item.after_warmup else "")
        numbers = words.cores(item.cores, report.summary.cores)
        if one_line:
            why.truncate(max(15, width - _BEFORE_WHY), overflow="ellipsis")
            if len(numbers) > _CORES_WIDE:
                numbers = f"{len(item.cores):,} cores"
        table.add_row(
            "-" if item.step is None else str(item.step),
            words.seconds(item.seconds) + many,
            numbers,
            *(() if one_line else (words.ended_by(item),)),
            words.tail(words.place(item.location), max(18, width // 4)),
            why,
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
