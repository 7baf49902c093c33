"""What the page gathers by line: the findings, the new graphs, and what each line cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.report import graph as graphs
from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xladoctor.findings import Finding, Location
    from xladoctor.graphs import Diff
    from xladoctor.results import Compilation, Report

#: Steps of a core that count as warm-up where reads and fallbacks are booked; compilations say it
#: themselves (``diagnosis/thresholds.py``).
_WARMUP = 3
#: Rows shown above and below a line that cost something.
_AROUND = 4
#: Rows of one file, and files, that the page shows: the most costly.
_ROWS, _FILES = 400, 12
#: Changes of one graph that the page shows.
_CHANGES = 80

Key = tuple[str, "int | None", int]


def key_of(place: Location | None) -> Key | None:
    """What makes two places the same line."""
    return None if place is None else (place.filename, place.cell, place.row)


# -- findings --------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """One line with all that was found there; without a line, one finding of the whole program.

    Attributes:
        number: From 1, in the order of the page: its anchor.
        location: The line.
        findings: What is wrong, the first to be read first.
        seconds: What they cost together.
    """

    number: int
    location: Location | None
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def severity(self) -> str:
        """Of the worst of them."""
        return min((f.severity for f in self.findings), key=lambda one: one.rank).value

    @property
    def suppression(self) -> str:
        """The comment that silences them on their line."""
        return f"# noqa: {', '.join(sorted({finding.code for finding in self.findings}))}"


def cards(findings: Iterable[Finding]) -> list[Card]:
    """The findings by line, each line where its first finding stands."""
    lines: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        place = finding.locations[0] if finding.locations else None
        lines.setdefault(key_of(place) or number, []).append(finding)
    return [
        Card(
            number,
            found[0].locations[0] if found[0].locations else None,
            tuple(found),
            sum(finding.seconds or 0.0 for finding in found),
        )
        for number, found in enumerate(lines.values(), 1)
    ]


# -- source ----------------------------------------------------------------------------------------
@dataclasses.dataclass(slots=True)
class Cost:
    """What one line cost a core (mean): seconds and counts."""

    warmup: float = 0.0
    steady: float = 0.0
    graphs: set[int] = dataclasses.field(default_factory=set)
    reads: int = 0
    fallbacks: int = 0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.warmup + self.steady

    @property
    def text(self) -> str:
        """The counts in words."""
        counts = (
            (len(self.graphs), "graph", "graphs"),
            (self.reads, "read", "reads"),
            (self.fallbacks, "CPU operation", "CPU operations"),
        )
        return ", ".join(f"{n:,} {one if n == 1 else more}" for n, one, more in counts if n)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row of the source; ``heat`` is its share of the most costly line, 0 to 1."""

    number: int
    text: str
    cost: Cost | None
    heat: float
    card: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """A file with what its lines cost.

    Attributes:
        name: As the run names it.
        pieces: Stretches of neighbouring rows around those that count.
        seconds: What its lines cost together.
        changed: Whether it was saved after the run had begun.
    """

    name: str
    pieces: tuple[tuple[Row, ...], ...]
    seconds: float
    changed: bool


def costs(report: Report) -> dict[Key, Cost]:
    """What each line cost, mean over the cores; counts are of all cores."""
    found: dict[Key, Cost] = {}
    if report.timeline is None:
        return found
    count = max(1, len(report.timeline.cores))
    for stretch in report.timeline.stretches:
        for event in stretch.events:
            key = key_of(event.location)
            if key is None:
                continue
            line = found.setdefault(key, Cost())
            late = stretch.first is not None and stretch.first > _WARMUP
            seconds = event.seconds
            if event.graph is not None:
                compilation = report.compilations[event.graph - 1]
                late = bool(compilation.after_warmup)
                # A core that waits for another to compile its graph would compile it itself.
                seconds = compilation.seconds
                line.graphs.add(event.graph)
            elif event.part == "host_sync":
                line.reads += event.count
            else:
                line.fallbacks += event.count
            if late:
                line.steady += (seconds or 0.0) / count
            else:
                line.warmup += (seconds or 0.0) / count
    return found


def source(report: Report, found: Iterable[Card]) -> list[SourceFile]:
    """The files whose text is known, around the lines that cost something or are to be changed."""
    spent = costs(report)
    numbers = {key_of(card.location): card.number for card in found if card.location is not None}
    most = max((cost.seconds for cost in spent.values()), default=0.0)
    files = []
    for name, text in report.sources.items():
        wanted = {
            key[2]: (spent.get(key), numbers.get(key))
            for key in (*spent, *numbers)
            if key is not None and key[0] == name and key[1] is None
        }
        hot = sorted(wanted, key=lambda row: -(cost.seconds if (cost := wanted[row][0]) else 0.0))
        shown: set[int] = set()
        for row in hot:
            near = range(max(1, row - _AROUND), min(len(text.lines), row + _AROUND) + 1)
            if len(shown | set(near)) <= _ROWS:
                shown |= set(near)
        rows = []
        for number in sorted(shown):
            cost, card = wanted.get(number, (None, None))
            heat = cost.seconds / most if cost is not None and most else 0.0
            rows.append(Row(number, text.lines[number - 1], cost, heat, card))
        if rows:
            seconds = sum(cost.seconds for cost, _ in wanted.values() if cost is not None)
            files.append(SourceFile(name, _pieces(rows), seconds, text.changed))
    return sorted(files, key=lambda one: -one.seconds)[:_FILES]


def _pieces(rows: list[Row]) -> tuple[tuple[Row, ...], ...]:
    pieces: list[list[Row]] = []
    for row in rows:
        if pieces and pieces[-1][-1].number == row.number - 1:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    return tuple(tuple(piece) for piece in pieces)


# -- graphs ----------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, slots=True)
class GraphDiff:
    """What differs from the graph before, as lines of text with their kind."""

    old: int
    lines: tuple[tuple[str, str], ...]
    hidden: int


@dataclasses.dataclass(frozen=True, slots=True)
class NewGraph:
    """One new graph: its number, what the report says of it, what differs from the one before."""

    number: int
    item: Compilation
    diff: GraphDiff | None


@dataclasses.dataclass(frozen=True, slots=True)
class GraphGroup:
    """The graphs that one line ended in one way.

    Attributes:
        location: The line.
        ended_by: In words.
        graphs: In the order in which they were compiled.
        seconds: What they took together.
        late: How many came after warm-up.
    """

    location: Location | None
    ended_by: str
    graphs: tuple[NewGraph, ...]
    seconds: float
    late: int


def graph_groups(report: Report) -> list[GraphGroup]:
    """The new graphs by line, the most costly first."""
    diffs: Mapping[int, Diff] = {diff.new: diff for diff in report.diffs}
    groups: dict[object, list[NewGraph]] = {}
    for number, item in enumerate(report.compilations, 1):
        diff = diffs.get(number)
        new = NewGraph(number, item, None if diff is None else _diff(diff))
        groups.setdefault((key_of(item.location), words.ended_by(item)), []).append(new)
    made = [
        GraphGroup(
            group[0].item.location,
            words.ended_by(group[0].item),
            tuple(group),
            sum(new.item.seconds or 0.0 for new in group),
            sum(bool(new.item.after_warmup) for new in group),
        )
        for group in groups.values()
    ]
    return sorted(made, key=lambda one: -one.seconds)


def _diff(diff: Diff) -> GraphDiff:
    lines = [("head", "inputs")] if diff.inputs else []
    lines += [(one.kind, graphs.change_text(one)) for one in diff.inputs]
    for place in diff.lines:
        lines.append(("head", graphs.heading(place.location)))
        lines += [(one.kind, graphs.change_text(one)) for one in place.changes]
    if not lines:
        lines.append(("head", "no operation, shape or constant differs"))
    return GraphDiff(diff.old, tuple(lines[:_CHANGES]), max(0, len(lines) - _CHANGES))
