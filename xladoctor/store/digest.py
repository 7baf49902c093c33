"""A part of a run with fewer rows: what a report over thousands of cores reads.

The rows of a core's steps are added up in stretches that double (4 to 7, 8 to 15, ...), so that
100,000 steps are about twenty rows; everything else stays as it was recorded. A digest is a run
directory in the form of ``docs/run-directory.md``, so whoever reads those reads digests.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from xladoctor.readings.fields import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Steps that keep a row each: warm-up, and the first after it.
_WHOLE = 4

#: Compilations of a core that keep a row each; beyond them they are counted by line.
MOST_GRAPHS = 256

#: Seconds in which a core waits for others or for its device: not what holds the others up.
_WAITING = ("execute", "host_sync", "core_wait")


class Digest:
    """Takes the rows of one process in order, and gives those of its digest."""

    def __init__(self) -> None:
        self._cores: dict[Any, _Core] = {}

    def feed(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Take a row; gives the rows that are settled by it."""
        kind = row.get("e")
        core = self._cores.setdefault(row.get("core"), _Core())
        if kind == "step":
            yield from core.step(row)
        elif kind == "compilation":
            yield from core.compilation(row)
        elif kind in ("core-end", "marked"):
            yield from core.settled()
            yield row
            if kind == "core-end":
                yield from core.typical(row.get("core"))
        elif kind == "end":
            yield from self.rest()
            yield row
        else:
            yield row

    def rest(self) -> Iterator[dict[str, Any]]:
        """What is held back still: to be asked when the record has ended, or is cut."""
        for number_of, core in self._cores.items():
            yield from core.settled()
            yield from core.typical(number_of)


class _Core:
    def __init__(self) -> None:
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}  # kind of stretch: bucket, row
        self._turns = 0  # iterations without an optimizer so far
        self._seconds: list[tuple[float, float, int]] = []  # a step's, its own, how many
        self._graphs = 0
        self._counted: dict[tuple[Any, Any], dict[str, Any]] = {}
        self._told = False

    def step(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        number_of, last = row.get("first"), row.get("last")
        kind, first = "between", 0
        if isinstance(number_of, int) and isinstance(last, int):
            kind, first = "step", number_of
            self._note(row, last - first + 1)
        elif row.get("iterations"):
            kind, first = "turn", self._turns + 1
            self._turns += int(row["iterations"])
        bucket = first if first < _WHOLE else _WHOLE + first.bit_length()
        before = self._open.get(kind)
        if before is not None and before[0] == bucket and (first >= _WHOLE or kind == "between"):
            _add(before[1], row)
            return
        if before is not None:
            yield from self.settled()
        self._open[kind] = (bucket, _own(row))

    def settled(self) -> Iterator[dict[str, Any]]:
        """The stretches that are open, in the order of time."""
        rows = [row for _, row in self._open.values()]
        self._open.clear()
        yield from sorted(rows, key=lambda row: row["t0"])
        yield from self._counted.values()
        self._counted = {}

    def compilation(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._graphs += 1
        if self._graphs <= MOST_GRAPHS:
            yield row
            return
        key = (row.get("site"), row.get("trigger"))
        seconds = number(row.get("seconds"))
        if key not in self._counted:
            kept = ("core", "step", "site", "trigger", "executions")
            self._counted[key] = {
                "e": "compilations",
                **{name: row.get(name) for name in kept},
                "count": 0,
                "seconds": None,
            }
        known = self._counted[key]
        known["count"] += 1
        if seconds is not None:
            known["seconds"] = (known["seconds"] or 0.0) + seconds

    def _note(self, row: dict[str, Any], steps: int) -> None:
        parts = row.get("parts") or {}
        total = row["t1"] - row["t0"]
        waited = sum(parts.get(part) or 0.0 for part in _WAITING)
        if row["first"] > _WHOLE - 1 and steps > 0:
            self._seconds.append((total / steps, max(0.0, total - waited) / steps, steps))

    def typical(self, core: Any) -> Iterator[dict[str, Any]]:
        """What a step of the core usually takes, and what of it is its own work."""
        if not self._seconds or self._told:
            return
        self._told = True
        each = [(one, steps) for one, _, steps in self._seconds]
        yield {
            "e": "typical",
            "core": core,
            "steps": sum(steps for *_, steps in self._seconds),
            "seconds": weighted_median(each),
            "own": weighted_median((own, steps) for _, own, steps in self._seconds),
            "low": weighted_quantile(each, 0.25),
            "high": weighted_quantile(each, 0.75),
        }


def weighted_median(values: Iterable[tuple[float, int]]) -> float:
    """The median of values that stand for several each."""
    ordered = sorted(values)
    if all(weight == 1 for _, weight in ordered):
        return statistics.median(value for value, _ in ordered)
    return weighted_quantile(ordered, 0.5)


def weighted_quantile(values: Iterable[tuple[float, int]], share: float) -> float:
    """The value below which a share of values lies that stand for several each."""
    ordered = sorted(values)
    wanted = sum(weight for _, weight in ordered) * share
    passed = 0
    for value, weight in ordered:
        passed += weight
        if passed >= wanted:
            return value
    raise ValueError("no values")


def _own(row: dict[str, Any]) -> dict[str, Any]:
    """A row that more can be added to; of one step, with what makes it a stretch later."""
    return json.loads(json.dumps(row)) if _has_tables(row) else {**row, "parts": {**row["parts"]}}


def _has_tables(row: dict[str, Any]) -> bool:
    return any(row.get(name) for name in ("syncs", "fallbacks", "launches", "transfers"))


def _add(into: dict[str, Any], row: dict[str, Any]) -> None:
    """Add a row of a stretch to those before it; its time is what they took together."""
    ends = [_ends(one) for one in (into, row)]
    if ends[0] is not None and ends[1] is not None:
        into["fastest"] = min(ends[0][0], ends[1][0])
        into["slowest"] = max(ends[0][1], ends[1][1])
    else:
        into.pop("fastest", None)
        into.pop("slowest", None)
    into["t1"] += row["t1"] - row["t0"]
    if row.get("last") is not None:
        into["last"] = row["last"]
    if row.get("iterations"):
        into["iterations"] = (into.get("iterations") or 0) + row["iterations"]
    for part, seconds in (row.get("parts") or {}).items():
        if seconds is not None:
            into["parts"][part] = (into["parts"].get(part) or 0.0) + seconds
    for name in ("syncs", "fallbacks", "launches"):
        _add_entries(into, name, row.get(name) or ())
    for way, tensors in (row.get("transfers") or {}).items():
        moved = into.setdefault("transfers", {})
        moved[way] = (moved.get(way) or 0) + (tensors or 0)
    held = row.get("held")
    if held and (not into.get("held") or held[0] > into["held"][0]):
        into["held"] = held


def _ends(row: dict[str, Any]) -> tuple[float, float] | None:
    """Seconds of the fastest and the slowest step of a row."""
    if row.get("fastest") is not None and row.get("slowest") is not None:
        return row["fastest"], row["slowest"]
    if row.get("last") is not None and row.get("last") == row.get("first"):
        return (row["t1"] - row["t0"],) * 2
    if row.get("iterations") == 1:
        return (row["t1"] - row["t0"],) * 2
    return None


def _add_entries(into: dict[str, Any], name: str, entries: Iterable[list[Any]]) -> None:
    """Add counts by site and what was done there: numbers are added, so are numbers by name."""
    table = into.get(name)
    if not isinstance(table, list):
        table = into[name] = []
    known = {(entry[0], entry[1]): entry for entry in table}
    for entry in entries:
        before = known.get((entry[0], entry[1]))
        if before is None:
            known[entry[0], entry[1]] = copied = list(entry)
            table.append(copied)
            continue
        for at, value in enumerate(entry[2:], 2):
            if at >= len(before):
                before.append(value)
            elif isinstance(value, dict) and isinstance(before[at], dict):
                before[at] = {
                    key: before[at].get(key, 0) + value.get(key, 0)
                    for key in {**before[at], **value}
                }
            elif value is not None:
                before[at] = value if before[at] is None else before[at] + value
