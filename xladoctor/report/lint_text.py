"""The linter's findings as text: ``full`` with code frames, ``concise`` one line each."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, TypeAlias

from rich.padding import Padding
from rich.text import Text

from xladoctor import visible
from xladoctor.findings import Applicability, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from xladoctor.findings import Finding, Location

    #: (filename, cell) to the lines of that file or cell.
    Lines: TypeAlias = Callable[[str, int | None], Sequence[str]]

_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_CONTEXT = 2
_TAB = 4


def concise(findings: Sequence[Finding], console: Console) -> None:
    """One line per finding: ``path:row:column: CODE message``."""
    for finding in findings:
        console.print(_header(visible.of(finding)), soft_wrap=True)


def full(findings: Sequence[Finding], lines: Lines, console: Console) -> None:
    """Each finding with the code it is about, why it is believed, and what to write instead."""
    for found in findings:
        wrapped = console.is_terminal
        finding = visible.of(found)
        console.print(_header(finding, name=True), soft_wrap=not wrapped)
        place = finding.locations[0]
        source = lines(found.locations[0].filename, place.cell)
        width = len(str(_last_row(place, source)))
        room = console.width - width - 4 if wrapped else None
        for line in _frame(place, source, width, _COLOURS[finding.severity], room):
            if wrapped:
                console.print(line, no_wrap=True, overflow="ellipsis")
            else:
                console.print(line, soft_wrap=True)
        for related in finding.related:
            where = f"{_place(related, place)} {related.note or ''}".rstrip()
            _note(console, width, "because", where, "blue")
        if finding.suggestion:
            _note(console, width, "help", finding.suggestion, "bold green")
        if finding.fix is not None:
            kind = "" if finding.fix.applicability is Applicability.SAFE else " (unsafe)"
            _note(console, width, "fix", finding.fix.message + kind, "bold green")
        console.print()


def statistics(findings: Sequence[Finding], console: Console) -> None:
    """How many findings each rule has, the most frequent first."""
    counts = collections.Counter((finding.code, finding.name) for finding in findings)
    fixable = {finding.code for finding in findings if finding.fix is not None}
    width = len(str(max(counts.values(), default=0)))
    for (code, name), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        mark = "[*]" if code in fixable else "[ ]"
        text = Text(f"{count:>{width}}  ")
        text.append(code, "bold")
        text.append(f"  {mark} {name}")
        console.print(text, soft_wrap=True)


def summary(findings: Sequence[Finding], fixed: int, *, unsafe: bool) -> str:
    """One or two sentences for the end of a run."""
    counts = collections.Counter(finding.severity for finding in findings)
    parts = [
        f"{counts[severity]} {severity.value}{'s' if counts[severity] != 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    if counts[Severity.INFO]:
        parts.append(f"{counts[Severity.INFO]} info")
    done = f" ({fixed} fixed, {len(findings)} left)" if fixed else ""
    if not findings:
        return f"Fixed {_count(fixed, 'finding')}, none left." if fixed else "All checks passed!"
    text = f"Found {_count(len(findings) + fixed, 'finding')}{done}: {', '.join(parts)}."
    kinds = collections.Counter(item.fix.applicability for item in findings if item.fix)
    safe, hidden = kinds[Applicability.SAFE], 0 if unsafe else kinds[Applicability.UNSAFE]
    safe += kinds[Applicability.UNSAFE] if unsafe else 0
    if safe:
        text += f" {safe} can be fixed with --fix."
    if hidden:
        text += f" {hidden} more with --fix --unsafe-fixes."
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _header(finding: Finding, *, name: bool = False) -> Text:
    place = finding.locations[0]
    text = Text()
    text.append(place.filename, "bold")
    text.append(f"{place.exactly[len(place.filename) :]}: ", "cyan")
    text.append(finding.code, _COLOURS[finding.severity])
    if name:
        text.append(f" [{finding.name}]", "dim")
    elif finding.fix is not None and finding.fix.applicability is Applicability.SAFE:
        text.append(" [*]", "cyan")
    text.append(f" {finding.message}")
    return text


def _place(related: Location, main: Location) -> str:
    if (related.filename, related.cell) == (main.filename, main.cell):
        return f"line {related.row}:"
    name = "" if related.filename == main.filename else f"{related.filename} "
    return f"{name}{related.inside}:"


def _note(console: Console, width: int, label: str, text: str, style: str) -> None:
    body = Text()
    body.append(f"{label}: ", style)
    body.append(text)
    if console.is_terminal:
        console.print(Padding(body, (0, 0, 0, width + 3)))
    else:
        console.print(Text(" " * (width + 3)) + body, soft_wrap=True)


def _last_row(place: Location, source: Sequence[str]) -> int:
    return min(max(place.end_row or place.row, place.row), len(source) or 1)


def _frame(
    place: Location, source: Sequence[str], width: int, colour: str, room: int | None
) -> list[Text]:
    """The rows around a place; ``room`` is that for code, None for as much as there is."""
    if not 0 < place.row <= len(source):
        return []
    last = min(_last_row(place, source), place.row + 4)
    gutter = Text(" " * width + "  |", "blue")
    result = [gutter]
    left = _left(_marks(place, place.row, source[place.row - 1].rstrip("\r\n")), room)
    for row in range(max(1, place.row - _CONTEXT), last + 1):
        line = Text(f" {row:>{width}} | ", "blue")
        code = source[row - 1].rstrip("\r\n")
        line.append(_from(_shown(code), left), "default")
        result.append(line)
        if row >= place.row:
            marks = _marks(place, row, code)
            if marks:
                result.append(gutter + Text(" " + marks[left:], colour))
    return result


def _left(marks: str, room: int | None) -> int:
    """How many columns to leave out on the left, so that what is marked can be seen."""
    begin = len(marks) - len(marks.lstrip())
    if room is None or begin + min(len(marks) - begin, room // 2) <= room:
        return 0
    return begin - room // 3


def _from(code: str, left: int) -> str:
    """The rest of a row of which columns are left out on the left."""
    return f"…{code[left + 1 :]}" if left and code else code


def _shown(code: str) -> str:
    return visible.code(code).expandtabs(_TAB)


def _marks(place: Location, row: int, code: str) -> str:
    indent = len(code) - len(code.lstrip())
    start = (place.column or 1) - 1 if row == place.row else indent
    end = (place.end_column or start + 2) - 1 if row == (place.end_row or place.row) else len(code)
    before = len(_shown(code[:start]))
    after = len(_shown(code[: max(end, start)]))
    return " " * before + "^" * max(after - before, 1 if row == place.row else 0)
