"""How the formats for people write numbers, times and places."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from rich.cells import cell_len

from xladoctor import amounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.findings import Finding, Location
    from xladoctor.results import Compilation, Report, Summary

#: Parts of the time by field name: what they are called, in the order in which they are shown.
PARTS = {
    "execute": "running on the device",
    "compile": "compiling",
    "host_sync": "waiting for reads",
    "fallback": "operations on the CPU",
    "input_wait": "waiting for input",
    "trace": "Python and tracing",
    "core_wait": "waiting for other cores",
    "transfer": "sending data to the device",
    "other": "other",
}

#: What ended a graph, by trigger.
TRIGGERS = {
    "step": "step end",
    "sync": "sync",
    "read": "read",
    "fallback": "CPU operation",
    "loader": "loader",
    "library": "library",
    "eager": "eager mode",
}

#: Causes of a compilation by kind.
CAUSES = {
    "first-graph": "first graph at this line",
    "input-shape": "an input changed its shape",
    "op-changed": "the operations changed",
    "constant-changed": "a Python number changed",
    "live-tensors-changed": "other tensors were alive",
    "host-sync-split": "a read cut the graph",
    "graph-grew": "the graph grew",
    "core-divergence": "this core differs from the others",
    "unknown": "no difference found in what was compared",
}

NOT_MEASURED = "not measured"

#: A share of the whole that is not worth a line.
_NOTHING = 1e-4
#: Cores, ranges of them or hosts that are named one by one.
_MOST_NAMES = 12


def number(value: int | None) -> str:
    """``1,200``, or "not measured"."""
    return NOT_MEASURED if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """``45 ms``, ``77.9 s``, ``12 min 5 s``; a dash for what was not measured."""
    if value is None:
        return "-"
    return amounts.duration(value)


def dash(value: int | None) -> str:
    """``1,200``, or a dash for what was not measured."""
    return "-" if value is None else f"{value:,}"


def amount(value: float | None, unit: str) -> str:
    """A metric's value in its unit: a duration, a size or a plain number."""
    if value is None:
        return "-"
    if unit == "s":
        return seconds(value)
    if unit != "B":
        return f"{value:,.0f}"
    return amounts.size(value)


def place(location: Location | None) -> str:
    """``train.py:52``, or "line not known"."""
    return "line not known" if location is None else location.at


def related(finding: Finding, most: int | None = None) -> list[str]:
    """``train.py:40 (the graph ends here)``: the further places of a finding.

    Args:
        finding: One with a line to change, and others that have to do with it.
        most: How many are named; the rest is counted.
    """
    places = [*finding.locations[1:], *finding.related]
    shown = places if most is None or len(places) <= most else places[:most]
    texts: list[str] = []
    for note, group in itertools.groupby(shown, key=lambda one: one.note):
        texts.append(", ".join(place(one) for one in group) + (f" ({note})" if note else ""))
    if len(shown) < len(places):
        texts.append(f"{len(places) - len(shown)} more")
    return texts


def witnesses(finding: Finding) -> str:
    """Who has seen it, where that says more than the finding: both roads, or not this run."""
    if "lint" in finding.confirmed_by and "runtime" in finding.confirmed_by:
        return "seen in the code and in the run"
    return "in the code, not seen in this run" if finding.ran is False else ""


def tail(text: str, columns: int) -> str:
    """The end of a long path: its file and line tell most."""
    return text if cell_len(text) <= columns else f"…{text[1 - columns :]}"


def cores(numbers: Iterable[int], total: int | None = None) -> str:
    """``all 8``, ``0-3, 7``; "" for none."""
    known = sorted(set(numbers))
    if len(known) > 1 and total is not None and len(known) == total:
        return f"all {total}"
    ranges: list[list[int]] = []
    for core in known:
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return _few([str(low) if low == high else f"{low}-{high}" for low, high in ranges])


def hosts(names: Sequence[str]) -> str:
    """Hosts, numbered ones as ranges: ``0-4, 6``; "" for none."""
    if all(name.isdecimal() for name in names):
        return cores(map(int, names))
    return _few(list(names))


def _few(names: Sequence[str]) -> str:
    """Names with commas; of very many the first."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_MOST_NAMES])} and {more} more"


def cause(compilation: Compilation, *, short: bool = False) -> str:
    """Why a graph was new, in words; ``short`` names the first of several changes only."""
    cause = compilation.cause
    text = CAUSES.get(cause.kind, cause.kind)
    if cause.other_type:
        text = "an input changed its type"
    if cause.detail:
        first, _, rest = cause.detail.partition("; ")
        detail = f"{first} ..." if short and rest else cause.detail
        # What cut the graph says more than that something did.
        text = detail if cause.kind == "host-sync-split" else f"{text}: {detail}"
    made = cause.location
    here = compilation.location
    if made is not None and made != here and place(made) not in text:
        near = here is not None and (made.filename, made.cell) == (here.filename, here.cell)
        text += f" (line {made.row})" if near else f" ({place(made)})"
    return text


def shares(summary: Summary) -> list[tuple[str, str, float, float]]:
    """The parts of the time that are above 0: field, name, seconds, share of the total.

    What "other" holds is shown by itself where that is known.
    """
    total = summary.seconds.total
    if not total:
        return []
    parts: dict[str, float] = {
        part: value for part, value in dataclasses.asdict(summary.seconds).items() if value
    }
    for part, value in (summary.within_other or {}).items():
        if part in PARTS and value and part not in parts:
            parts[part] = value
            parts["other"] = max(0.0, parts.get("other", 0.0) - value)
    if parts.get("other", 0.0) < _NOTHING * total:
        parts.pop("other", None)  # what rounding leaves
    return [
        (part, PARTS[part], parts[part], parts[part] / total) for part in PARTS if part in parts
    ]


def ended_by(compilation: Compilation) -> str:
    """What ended the graph: "step end", "read", "step end in lightning"; "-" if not known."""
    if compilation.trigger is None:
        return "-"
    text = TRIGGERS.get(compilation.trigger, compilation.trigger)
    return f"{text} in {compilation.via}" if compilation.via else text


def counts(report: Report) -> list[tuple[str, str]]:
    """The small table of counts: label and text."""
    summary = report.summary
    after = summary.compilations_after_warmup
    compilations = number(summary.compilations)
    if summary.compilations is not None and after is not None:
        compilations += f" ({after:,} after warm-up)"
    fallbacks = NOT_MEASURED
    if summary.fallbacks is not None:
        total = sum(summary.fallbacks.values())
        names = ", ".join(
            f"{name} {count:,}" for name, count in list(summary.fallbacks.items())[:3]
        )
        more = len(summary.fallbacks) - 3
        fallbacks = f"{total:,}" + (
            f" ({names}{f', {more} more' if more > 0 else ''})" if names else ""
        )
    steps = number(summary.steps)
    medians = [c.step_seconds_median for c in report.cores if c.step_seconds_median is not None]
    if medians:
        fastest = [c.step_seconds_min for c in report.cores if c.step_seconds_min is not None]
        slowest = [c.step_seconds_max for c in report.cores if c.step_seconds_max is not None]
        between = ""
        if fastest and slowest:
            between = f", from {seconds(min(fastest))} to {seconds(max(slowest))}"
        steps += f" (typically {seconds(sorted(medians)[len(medians) // 2])} each{between})"
    return [
        ("Cores", number(summary.cores)),
        ("Steps per core", steps),
        ("Compilations per core", compilations),
        ("CPU fallbacks, all cores", fallbacks),
        ("Host syncs, all cores", number(summary.host_syncs)),
    ]


def cores_differ(report: Report) -> bool:
    """Whether a table of the cores tells more than the summary: counts differ, or one is slow."""
    counted = {(c.compilations, c.steps, c.host_syncs, c.fallbacks) for c in report.cores}
    medians = [c.step_seconds_median for c in report.cores if c.step_seconds_median]
    return (
        len(counted) > 1
        or len(report.alike) > 1
        or (len(medians) > 1 and max(medians) > 1.2 * min(medians))
    )
