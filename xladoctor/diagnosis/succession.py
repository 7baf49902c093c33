"""Processes of one run that came one after the other: a program may launch its cores repeatedly."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.readings.tables import CoreRow, ProcessRow

_Row = TypeVar("_Row")

#: Fields of rows that hold the number of a step.
_STEPS = ("step", "first", "last")


def followers(cores: Iterable[CoreRow], processes: Iterable[ProcessRow] = ()) -> dict[str, str]:
    """Which process continues which.

    Args:
        cores: The cores of one run that have stepped; their times are of one clock.
        processes: The processes of the run, on the same clock: two that live at the same time are
            different cores, even if one has stepped before the other.

    Returns:
        Process to the one before it, which had ended, or at least all of its cores, when it began.
        A process has at most one that continues it.
    """
    spans: dict[str, tuple[float, float]] = {}
    for row in cores:
        began, ended = spans.get(row.process, (math.inf, -math.inf))
        own_end = math.inf if row.ended is None else row.ended
        own_start = -math.inf if row.started is None else row.started
        spans[row.process] = min(began, own_start), max(ended, own_end)
    for one in processes:
        if one.process in spans and one.since is not None:
            spans[one.process] = one.since, math.inf if one.until is None else one.until
    free: list[str] = []
    follows: dict[str, str] = {}
    for process in sorted(spans, key=lambda one: spans[one]):
        before = [one for one in free if spans[one][1] <= spans[process][0]]
        if before:
            follows[process] = max(before, key=lambda one: spans[one][1])
            free.remove(follows[process])
        free.append(process)
    return follows


def shifted(row: _Row, steps: int) -> _Row:
    """A row of a process that continues one with so many steps."""
    if not steps:
        return row
    numbers = {name: getattr(row, name, None) for name in _STEPS}
    found = {name: number + steps for name, number in numbers.items() if number is not None}
    return dataclasses.replace(row, **found)  # type: ignore[type-var]
