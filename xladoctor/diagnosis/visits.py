"""How often a line does something: in each step, or many times in a row between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.readings.tables import FallbackRow, SyncRow

#: So many times of one line between two steps, at so small a share of the steps, are a loop. O.
_IN_A_ROW, _RARE = 3, 0.5


def in_a_row(run: RunFacts, rows: Sequence[SyncRow | FallbackRow]) -> float | None:
    """How often a line does it each time the program comes to it between two steps (mean).

    Args:
        run: The run.
        rows: What the line did, on all cores.

    Returns:
        None for a line that does it in most steps (it is in the step) or once each time (a log
        line), and where steps share rows, so that nobody knows.
    """
    if any(row.first is not None and row.first != row.last for row in rows):
        return None
    # What comes after the last step of a core has no number, but a row of its own.
    # What comes before the first step (a constructor that compares its weights) is no evaluation.
    if all(row.first is not None and row.first <= 1 for row in rows):
        return None
    visits = len({(row.core, row.first) for row in rows})
    steps = sum(run.steps_by_core.get(core, 0) for core in {row.core for row in rows})
    each = sum(row.count for row in rows) / visits
    return each if each >= _IN_A_ROW and visits <= steps * _RARE else None
