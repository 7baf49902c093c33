"""The report of many cores on one screen: how they differ comes before what they all did."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xladoctor import amounts
from xladoctor.report import device_terminal, sharding_terminal, words
from xladoctor.report.terminal_parts import (
    PART_MARKS,
    PART_STYLES,
    answer,
    bar,
    compilations,
    finding_in_full,
    head,
    heading,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from xladoctor.findings import Finding
    from xladoctor.results import AlikeCores, Report

#: Rows of the tables, and findings that are named; the rest is summed up in a line each.
_COMPILATIONS, _GROUPS, _FINDINGS, _NOTES = 4, 6, 6, 8
#: Kinds of findings up to which a message may take more lines than one.
_FEW = 3
#: Columns of the numbers of cores and hosts before they are counted instead.
_CORES_WIDE, _HOSTS_WIDE = 24, 16
_INSIDE = (0, 0, 0, 2)
#: What of a difference is an amount or a place, and not its kind.
_AMOUNT = re.compile(r" \(the first at [^)]*\)|s\b|\d+(\.\d+)?( ms| s| min)?|more|fewer|\W+")


def parts(report: Report, width: int) -> Iterable[RenderableType]:
    """What the report is made of, in order; everything is in the page and in JSON."""
    yield answer(report)
    yield _joined(f"{label} {text}" for label, text in words.counts(report))
    if words.shares(report.summary):
        total = words.seconds(report.summary.seconds.total)
        yield heading(f"Where the time went ({total} a core)")
        yield Padding(Group(bar(report, width), _legend(report, width)), _INSIDE)
    if report.findings:
        yield heading(f"Findings ({len(report.findings)})")
        yield from _findings(report)
    if report.sharding is not None:
        yield from sharding_terminal.parts(report.sharding, width)
    if report.tpu:
        yield from device_terminal.parts(report.tpu, width)
    if words.cores_differ(report):
        yield heading("Cores")
        yield _alike(report)
    if report.compilations:
        yield heading("Compilations")
        yield compilations(report, width, _COMPILATIONS, one_line=True)
    if report.about or report.notes:
        yield heading("About this report")
        yield _joined(report.about.values())
        for note in report.notes[:_NOTES]:
            yield Padding(Text(f"Note: {note}", style="dim"), _INSIDE)
        yield from _rest(report.notes[_NOTES:], "notes")
    codes = sorted({finding.code for finding in report.findings})
    more = f"xladoctor explain {codes[0]}; " if codes else ""
    yield Text(f"\nRead more: {more}all of it: --html FILE, --output-format json", style="dim")


def _joined(texts: Iterable[str]) -> Padding:
    return Padding(Text(" · ".join(texts), style="dim"), _INSIDE)


def _legend(report: Report, width: int) -> Text:
    """The parts of the time side by side, the largest first; none is cut in two by a line's end."""
    shares = sorted(words.shares(report.summary), key=lambda share: -share[3])
    legend, used = Text(), 0
    for part, name, _, share in shares:
        text = f"{PART_MARKS[part]} {name} {amounts.percent(share)}"
        if used and used + cell_len(text) > width - 4:
            legend.append("\n")
            used = 0
        legend.append(f"{PART_MARKS[part]} ", PART_STYLES[part])
        legend.append(f"{text[2:]}  ")
        used += cell_len(text) + 2
    return legend


def _findings(report: Report) -> Iterable[RenderableType]:
    """The most costly of each code: the first in full, of the others what and where."""
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append(finding)
    for at, (first, *others) in enumerate(list(by_code.values())[:_FINDINGS]):
        number = report.findings.index(first) + 1
        if at == 0:
            yield finding_in_full(number, first, report, told=_is_told(first, report))
        else:
            line = head(number, first, report)
            if first.locations:
                line.append(f" · {words.place(first.locations[0])}", style="dim")
            body = Text(first.message, no_wrap=len(by_code) > _FEW, overflow="ellipsis")
            yield Padding(Group(line, Padding(body, (0, 0, 0, 3))), _INSIDE)
        if others:
            yield Padding(_like(first, others, report), (0, 0, 0, 5))
    yield from _rest(list(by_code.values())[_FINDINGS:], "kinds of findings")


def _like(first: Finding, others: Sequence[Finding], report: Report) -> Text:
    """The other findings of a code in one line: how many, on which cores and lines."""
    where = []
    for finding in others:
        numbers = words.cores(finding.cores, report.summary.cores) if finding.cores else ""
        cores = f"core{'s' * (len(finding.cores) > 1)} {numbers}" if numbers else ""
        if len(numbers) > _CORES_WIDE or numbers.startswith("all"):
            cores = f"{len(finding.cores):,} cores"
        place = words.place(finding.locations[0]) if finding.locations else ""
        where.append(" at ".join(filter(None, (cores, place))))
    named = "; ".join(filter(None, dict.fromkeys(where)))
    text = f"and {len(others)} more {first.code}" + (f": {named}" if named else "")
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _is_told(finding: Finding, report: Report) -> bool:
    """Whether the answer says all that the finding would."""
    said = report.summary.why.casefold(), report.summary.next.casefold()
    return (
        finding.message.casefold() in said[0] and (finding.suggestion or "").casefold() in said[1]
    )


def _rest(items: Sequence[object], what: str) -> Iterable[Padding]:
    if items:
        text = f"and {len(items)} more {what}; all of them: --output-format json"
        yield Padding(Text(text, style="dim"), _INSIDE)


def _alike(report: Report) -> Group:
    """The cores by what they did: a row for those that agree, and for those that differ alike."""
    groups = _merged(report.alike)
    hosts = any(group.hosts for group in groups)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("cores", overflow="fold", max_width=_CORES_WIDE)
    if hosts:
        table.add_column("host", overflow="fold", max_width=_HOSTS_WIDE)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("typical step", justify="right", no_wrap=True)
    table.add_column("what is different", overflow="fold", ratio=1)
    for group in groups[:_GROUPS]:
        many = len(group.cores) > 1
        numbers = words.cores(group.cores)
        table.add_row(
            f"{words.number(len(group.cores))} cores" if len(numbers) > _CORES_WIDE else numbers,
            *([_hosts(group.hosts)] if hosts else ()),
            words.dash(group.steps),
            words.seconds(group.step_seconds_median),
            group.differs or ("these agree" if many else "-"),
        )
    return Group(Padding(table, _INSIDE), *_rest(groups[_GROUPS:], "groups"))


def _hosts(names: tuple[str, ...]) -> str:
    text = words.hosts(names)
    return f"{words.number(len(names))} hosts" if len(text) > _HOSTS_WIDE else text


def _merged(groups: Sequence[AlikeCores]) -> list[AlikeCores]:
    """Groups as one that differ from most cores in the same way, whatever the amounts."""
    ways: dict[str, list[AlikeCores]] = {}
    for group in groups:
        ways.setdefault(_AMOUNT.sub("", group.differs), []).append(group)
    return [_one(alike) for alike in ways.values()]


def _one(alike: Sequence[AlikeCores]) -> AlikeCores:
    first = alike[0]
    if len(alike) == 1:
        return first
    medians = sorted(one.step_seconds_median for one in alike if one.step_seconds_median)
    return dataclasses.replace(
        first,
        cores=tuple(sorted(core for one in alike for core in one.cores)),
        hosts=tuple(dict.fromkeys(host for one in alike for host in one.hosts)),
        steps=first.steps if len({one.steps for one in alike}) == 1 else None,
        step_seconds_median=medians[len(medians) // 2] if medians else None,
        differs=f"core {first.cores[0]}: {first.differs}; the rest likewise, in other amounts",
    )
