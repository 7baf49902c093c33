"""Geometry of the page's timeline: one track a core, drawn by the template as inline SVG."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.results import Report
    from xladoctor.timeline import Stretch

#: Inside of the drawing in SVG units, and the height of a track and of the space under it.
WIDTH, TRACK, GAP = 1000, 18, 6
#: Blocks of all tracks together: what keeps the page small.
_BLOCKS = 3200
#: Blocks of one track: more cannot be told apart without zooming in far.
_BLOCKS_OF_A_CORE = 400


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """One or several stretches of a core's time.

    Attributes:
        x, width: Where it is drawn.
        title: What it is, in words: shown on hover.
        new: Whether a graph was compiled in it.
    """

    x: float
    width: float
    title: str
    new: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Track:
    """A core: its blocks, and one path for each part of the time.

    Attributes:
        core: The core.
        y: Where the track begins.
        paths: Part to its path.
        blocks: In the order of time.
        shares: Part, its name, seconds and share of the core's time: for the comparison of cores.
    """

    core: int
    y: int
    paths: dict[str, str]
    blocks: tuple[Block, ...]
    shares: tuple[tuple[str, str, float, float], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Tracks:
    """The whole drawing.

    Attributes:
        tracks: By core.
        total: Seconds that the width stands for.
        ticks: Share of the width and label.
        blocks_of: How many stretches one block stands for, at most.
        shared: Whether the record itself holds several steps in one row.
    """

    tracks: tuple[Track, ...]
    total: float
    ticks: tuple[tuple[float, str], ...]
    blocks_of: int
    shared: bool
    width: int = WIDTH
    track: int = TRACK

    @property
    def height(self) -> int:
        """Of the drawing."""
        return len(self.tracks) * (TRACK + GAP)


def tracks(report: Report) -> Tracks | None:
    """The timeline of a report; None if no time was recorded."""
    timeline = report.timeline
    if timeline is None or not timeline.stretches:
        return None
    by_core: dict[int, list[Stretch]] = {}
    total = max(one.start + one.seconds for one in timeline.stretches) or 1.0
    drawn = frozenset(report.drawn)
    for one in timeline.stretches:
        if not drawn or one.core in drawn:
            by_core.setdefault(one.core, []).append(one)
    most = max(20, min(_BLOCKS_OF_A_CORE, _BLOCKS // len(by_core)))
    size = max(math.ceil(len(found) / most) for found in by_core.values())
    made = []
    for place, (core, found) in enumerate(sorted(by_core.items())):
        y = place * (TRACK + GAP)
        blocks = [found[at : at + size] for at in range(0, len(found), size)]
        made.append(
            Track(
                core,
                y,
                _paths(blocks, y, total),
                tuple(_block(block, core, total) for block in blocks),
                tuple(_shares(found)),
            )
        )
    return Tracks(
        tuple(made),
        total,
        tuple(_ticks(total)),
        size,
        any(one.steps > 1 for one in timeline.stretches),
    )


def _x(seconds: float, total: float) -> float:
    return round(seconds / total * WIDTH, 2)


def _sums(block: Sequence[Stretch]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for one in block:
        for part, seconds in one.parts.items():
            sums[part] = sums.get(part, 0.0) + max(0.0, seconds)
    return sums


def _paths(blocks: Sequence[Sequence[Stretch]], y: int, total: float) -> dict[str, str]:
    paths: dict[str, list[str]] = {}
    for block in blocks:
        at = block[0].start
        sums = _sums(block)
        for part in words.PARTS:
            seconds = sums.get(part, 0.0)
            width = _x(seconds, total)
            if width > 0:
                path = f"M{_x(at, total):g} {y}h{width:g}v{TRACK}h-{width:g}z"
                paths.setdefault(part, []).append(path)
            at += seconds
    return {part: "".join(found) for part, found in paths.items()}


def _block(block: Sequence[Stretch], core: int, total: float) -> Block:
    end = block[-1].start + block[-1].seconds
    new = sum(one.count("compile") for one in block)
    return Block(
        _x(block[0].start, total),
        max(0.01, _x(end - block[0].start, total)),
        _title(block, core, new),
        new > 0,
    )


def _title(block: Sequence[Stretch], core: int, new: int) -> str:
    steps = sum(one.steps for one in block)
    seconds = sum(one.seconds for one in block)
    name = block[0].name
    if len(block) > 1 and steps:
        numbered = [one for one in block if one.first is not None]
        name = f"steps {numbered[0].first}-{numbered[-1].last}"
    lines = [f"core {core}, {name}: {words.seconds(seconds)}"]
    if steps > 1:
        fastest, slowest = _extremes(block)
        lines.append(f"one step: {words.seconds(fastest)} to {words.seconds(slowest)}")
    sums = _sums(block)
    lines += [
        f"{name}: {words.seconds(sums[part])}"
        for part, name in words.PARTS.items()
        if sums.get(part, 0.0) >= 0.01 * seconds and sums.get(part)
    ]
    counts = (
        (new, "new graph"),
        (sum(one.count("host_sync") for one in block), "read"),
        (sum(one.count("fallback") for one in block), "CPU operation"),
    )
    lines += [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return "\n".join(lines)


def _extremes(block: Sequence[Stretch]) -> tuple[float, float]:
    """The fastest and the slowest step of a block, in seconds."""
    steps = [one for one in block if one.steps]
    fastest = [one.seconds / one.steps if one.fastest is None else one.fastest for one in steps]
    slowest = [one.seconds / one.steps if one.slowest is None else one.slowest for one in steps]
    return min(fastest), max(slowest)


def _shares(found: Sequence[Stretch]) -> Iterator[tuple[str, str, float, float]]:
    sums = _sums(found)
    whole = sum(one.seconds for one in found)
    for part, name in words.PARTS.items():
        if whole and sums.get(part, 0.0) > 0:
            yield part, name, sums[part], sums[part] / whole


def _ticks(total: float) -> Iterator[tuple[float, str]]:
    unit = 10.0 ** math.floor(math.log10(total))
    size = next(unit * f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if total / (unit * f) <= 8)
    for number in range(int(total / size) + 1):
        yield number * size / total, words.seconds(number * size) if number else "0"
