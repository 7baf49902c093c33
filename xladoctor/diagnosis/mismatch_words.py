"""Cores that build different graphs, in words: who differs from whom, and in what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis.words import cores_text, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.readings.tables import DivergenceRow, Extra

#: Groups of cores, lines, and operations of a line that a sentence names.
_GROUPS, _LINES, _OPERATIONS = 3, 3, 5
#: Operations that only bring a number or a shape into the graph.
_PLUMBING = ("expand", "view", "reshape", "constant", "device_data", "broadcast")


def sentence(row: DivergenceRow) -> str | None:
    """Such as: core 0 builds another graph than cores 1-7: core 0 adds softmax (train.py:40).

    Returns:
        None if the record does not say which cores have which graph.
    """
    if len(row.groups) < 2:
        return None
    # Of numbers and shapes the simulation knows more than what the graphs have alone: 0 and 1 are
    # no inputs, and behind an input of another shape all operations differ.
    told = row.difference if row.what in ("constants", "shapes") else ""
    what = told or _values(row) or _operations(row) or row.difference
    return who(row) + (f": {what}" if what else "")


def who(row: DivergenceRow) -> str:
    """Which cores build another graph than which."""
    every = [core for group in row.groups for core in group]
    few = list(row.cores)
    if few and len(few) < len(every):
        rest = [core for core in every if core not in few]
        verb = "builds" if len(few) == 1 else "build"
        return f"{_cores(few)} {verb} another graph than {_cores(rest)}"
    if len(row.groups) == 2:
        return f"{_cores(row.groups[0])} and {_cores(row.groups[1])} build different graphs"
    return f"{_cores(every)} build {len(row.groups)} different graphs"


def _values(row: DivergenceRow) -> str:
    """The same operation with another number: 0 on core 0, 1 on core 1."""
    numbers = [
        next((one for one in extras if one.value is not None), None) for extras in row.differs
    ]
    known = [(one, group) for one, group in zip(numbers, row.groups, strict=False) if one]
    if row.what != "constants" or not known:
        return ""
    parts = [f"{one.value} on {_cores(group)}" for one, group in known[:_GROUPS]]
    rest = [core for one, group in zip(numbers, row.groups, strict=False) if not one
            for core in group]  # fmt: skip
    if rest:
        parts.append(f"another number, as an input, on {_cores(rest)}")
    place = next((one.place for one, _ in known if one.place), None)
    return (
        f"a number is {', '.join(parts)}{f' ({place})' if place else ''}; torch_xla writes 0 and 1 "
        "into the graph, where other numbers are inputs"
    )


def _operations(row: DivergenceRow) -> str:
    """What each group has alone, with its lines."""
    parts = []
    for group, extras in zip(row.groups, row.differs, strict=False):
        if extras:
            verb = "adds" if len(group) == 1 else "add"
            parts.append(f"{_cores(group)} {verb} {_by_line(extras)}")
    more = len(parts) - _GROUPS
    return "; ".join(parts[:_GROUPS]) + (f"; and {more} more groups of cores" if more > 0 else "")


def _by_line(extras: Sequence[Extra]) -> str:
    """Operations by the line that made them: softmax, max, mul (train.py:40)."""
    lines: dict[str | None, dict[str, None]] = {}
    telling = [one for one in extras if _name(one) not in _PLUMBING] or list(extras)
    for one in telling:
        lines.setdefault(one.place, {})[_name(one)] = None
    parts = []
    for place, names in list(lines.items())[:_LINES]:
        shown = list(names)[:_OPERATIONS]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        parts.append(f"{', '.join(shown)}{more}" + (f" ({place})" if place else ""))
    rest = len(lines) - len(parts)
    return ", ".join(parts) + (f" and {plural(rest, 'more line')}" if rest > 0 else "")


def _name(one: Extra) -> str:
    return one.operation.rpartition("::")[2].strip("_") or one.operation


def _cores(cores: Iterable[int]) -> str:
    return cores_text(cores, ())
