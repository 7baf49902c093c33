"""Geometry of the page's charts, as numbers; the template draws them as inline SVG."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.results import Report

#: Inside of the chart in SVG units.
WIDTH, HEIGHT = 900, 220
#: A line has at most this many points; longer runs are drawn by the slowest step of each bin,
#: because a slow step is what one looks for.
_POINTS = 450


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One core's step times as SVG points; the band reaches from the slowest to the fastest."""

    core: int
    points: str
    band: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A step in which something was compiled."""

    x: float
    step: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """Step times per core with compilations marked.

    ``ticks_x`` and ``ticks_y`` are positions with labels. ``logarithmic`` tells the scale of y,
    ``bin`` how many steps a point stands for.
    """

    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    ticks_x: tuple[tuple[float, str], ...]
    ticks_y: tuple[tuple[float, str], ...]
    logarithmic: bool
    bin: int = 1
    width: int = WIDTH
    height: int = HEIGHT


def step_chart(report: Report) -> Chart | None:
    """The chart of step times; None when fewer than two steps were measured."""
    drawn = frozenset(report.drawn)
    known = {core: each for core, each in report.steps.items() if not drawn or core in drawn}
    steps = max((len(seconds) for seconds in known.values()), default=0)
    values = [value for seconds in known.values() for value in seconds if value > 0]
    if steps < 2 or not values:
        return None
    low, high = min(values), max(values)
    logarithmic = high / low > 20  # a compilation would press the other steps flat

    def x(step: float) -> float:
        return round((step - 1) / (steps - 1) * WIDTH, 1)

    def y(value: float) -> float:
        if not logarithmic:
            return round(HEIGHT * (1 - value / high), 1)
        span = math.log(high / low)
        return round(HEIGHT * (1 - math.log(max(value, low) / low) / span), 1)

    lines = []
    for core, seconds in sorted(known.items()):
        size = max(1, math.ceil(len(seconds) / _POINTS))
        bins = [(at, seconds[at : at + size]) for at in range(0, len(seconds), size)]
        slowest = [f"{x(at + 1 + (len(b) - 1) / 2)},{y(max(b))}" for at, b in bins]
        fastest = [f"{x(at + 1 + (len(b) - 1) / 2)},{y(min(b))}" for at, b in bins]
        band = " ".join([*slowest, *reversed(fastest)]) if size > 1 else ""
        lines.append(Line(core, " ".join(slowest), band))
    marks: dict[int, int] = {}
    for item in report.compilations:
        if item.step is not None and 1 <= item.step <= steps:
            marks[item.step] = marks.get(item.step, 0) + 1
    return Chart(
        lines=tuple(lines),
        marks=tuple(Mark(x(step), step, count) for step, count in sorted(marks.items())),
        ticks_x=tuple((x(step), str(step)) for step in _step_ticks(steps)),
        ticks_y=tuple((y(value), _label(value)) for value in _time_ticks(low, high, logarithmic)),
        logarithmic=logarithmic,
        bin=max(1, math.ceil(steps / _POINTS)),
    )


def _step_ticks(steps: int) -> list[int]:
    size = _nice(steps / 6)
    ticks = [1, *range(size, steps, size)] if size > 1 else list(range(1, steps + 1))
    ticks = [tick for tick in ticks if steps - tick >= size / 2 and (tick == 1 or tick > size / 2)]
    return [*ticks, steps]


def _nice(value: float) -> int:
    """The smallest of 1, 2, 5, 10, 20 ... that is at least ``value``."""
    size = 1
    for factor in (2, 2.5, 2) * 12:
        if size >= value:
            break
        size = int(size * factor)
    return size


def _time_ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if logarithmic:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        return [10.0**power for power in powers]
    unit = 10.0 ** math.floor(math.log10(high))
    size = next(unit * f for f in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if high / (unit * f) <= 5)
    return [size * i for i in range(int(high / size) + 1)]


def _label(value: float) -> str:
    return f"{value:g} s" if value >= 1 or value == 0 else f"{value * 1000:g} ms"
