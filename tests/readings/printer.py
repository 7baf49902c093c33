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
    #: Server metrics (XRT): mean and standard deviation, no value rate.
    mean: str | None = None

    def lines(self) -> list[str]:
        word = "Counter" if self.old else "Accumulator"
        out = [
            f"Metric: {self.name}",
            f"  TotalSamples: {self.samples}",
            f"  {word}: {self.accumulator}",
        ]
        if self.mean is not None:
            out += [f"  Mean: {self.mean}", f"  StdDev: {self.mean}", "  Rate: 1.2e+06 / second"]
        elif self.rates:
            out += [f"  ValueRate: {self.accumulator} / second", "  Rate: 1.5e-05 / second"]
        heads = "; ".join(f"{head}%={value}" for head, value in self.percentiles.items())
        return [*out, f"  Percentiles: {heads}"]


@dataclasses.dataclass(frozen=True)
class Era:
    """How torch_xla printed at a time."""

    name: str
    padded: bool = True  # microseconds, since 2020-01-28
    old: bool = False  # "Counter:" for "Accumulator:", before 2019-09-16
    sections: int = 1  # two of the client since 2.0
    server: bool = False  # metrics of the XRT worker after the counters, 2020-01-28 to 2.1
    twice: bool = False  # short_metrics_report() may print a counter twice


ERAS = (
    Era("2018 to 2019-09", padded=False, old=True),
    Era("2019-09 to 2020-01", padded=False),
    Era("1.5 to 1.13 with XRT", server=True),
    Era("1.12 and 1.13 with PJRT"),
    Era("2.0 and 2.1 with XRT", sections=2, server=True),
    Era("2.0 to 2.9", sections=2),
    Era("short report, 2.0 to 2.9", twice=True),
)


def print_report(metrics: list[Printed], counters: dict[str, int]) -> list[str]:
    """The lines of one section."""
    out = [line for metric in metrics for line in metric.lines()]
    for name, value in counters.items():
        out += [f"Counter: {name}", f"  Value: {value}"]
    return out
