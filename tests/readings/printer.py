"""Metrics reports printed the way torch_xla prints them (metrics.cpp, 2018 to 2.9)."""

from __future__ import annotations

import dataclasses
from decimal import ROUND_HALF_EVEN, Decimal

_PARTS = (("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000),
          ("s", 1_000_000_000), ("ms", 1_000_000))  # fmt: skip
HEADS = ("1", "5", "10", "20", "50", "80", "90", "95", "99")


def print_time(ns: int, *, padded: bool = True) -> str:
    """MetricFnTime: every part is rounded as it is printed, and its floor is taken off."""
    out = ""
    for name, unit in _PARTS:
        if ns >= unit or out:
            shown = int((Decimal(ns) / unit).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))
            out += f"{shown:0{3 if name == 'ms' else 2}d}{name}"
            ns %= unit
    micros = f"{ns // 1000}.{ns % 1000:03d}"
    return out + (micros.rjust(7, "0") if padded else micros) + "us"


def ambiguous(ns: int) -> bool:
    """Exactly half of a unit is rounded to even: then two durations print alike."""
    return any(ns >= unit and (ns % unit) * 2 == unit for _, unit in _PARTS)


def print_bytes(count: float) -> str:
    """MetricFnBytes."""
    units = ["B", "KB", "MB", "GB", "TB", "PB"]
    at = 0
    while count >= 1024 and at < len(units) - 1:
        count /= 1024
        at += 1
    return f"{count:.2f}{units[at]}"


@dataclasses.dataclass(frozen=True)
class Printed:
    """A metric to print; the accumulator and the percentiles are texts."""

    name: str
    samples: int
    accumulator: str
    percentiles: dict[str, str]
    rates: bool = True
    old: bool = False

    def lines(self) -> list[str]:
        word = "Counter" if self.old else "Accumulator"
        out = [
            f"Metric: {self.name}",
            f"  TotalSamples: {self.samples}",
            f"  {word}: {self.accumulator}",
        ]
        if self.rates:
            out += [f"  ValueRate: {self.accumulator} / second", "  Rate: 1.5e-05 / second"]
        heads = "; ".join(f"{head}%={value}" for head, value in self.percentiles.items())
        return [*out, f"  Percentiles: {heads}"]


def print_report(metrics: list[Printed], counters: dict[str, int]) -> list[str]:
    """The lines of one section."""
    out = [line for metric in metrics for line in metric.lines()]
    for name, value in counters.items():
        out += [f"Counter: {name}", f"  Value: {value}"]
    return out
