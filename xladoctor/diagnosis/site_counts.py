"""Reads and fallbacks of a recorded run by line and core: what the report's JSON lists."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from xladoctor.diagnosis.case import sum_known
from xladoctor.results import KINDS_OF_READ, Fallbacks, Reads

if TYPE_CHECKING:
    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.readings.tables import FallbackRow, SyncRow


def reads(run: RunFacts) -> tuple[Reads, ...]:
    """Reads by line, kind and core, in the order in which they were first seen."""
    groups: dict[tuple[object, str, int], list[SyncRow]] = {}
    for row in run.syncs:
        groups.setdefault((run.place(row.frames), row.what, row.core), []).append(row)
    found = []
    for (_, what, core), rows in groups.items():
        kinds: collections.Counter[str] = collections.Counter()
        for row in rows:
            kinds.update(row.kinds or {})
        known = all(row.kinds is not None for row in rows)
        found.append(
            Reads(
                run.place(rows[0].frames),
                what,
                core,
                sum(row.count for row in rows),
                sum_known(row.seconds for row in rows),
                **{kind: kinds[kind] if known else None for kind in KINDS_OF_READ},
            )
        )
    return tuple(found)


def fallbacks(run: RunFacts) -> tuple[Fallbacks, ...]:
    """Operations on the CPU by line, operation and core."""
    groups: dict[tuple[object, str, int], list[FallbackRow]] = {}
    for row in run.fallbacks:
        groups.setdefault((run.place(row.frames), row.operation, row.core), []).append(row)
    return tuple(
        Fallbacks(
            run.place(rows[0].frames),
            operation,
            core,
            sum(row.count for row in rows),
            sum_known(row.seconds for row in rows),
            sum_known(row.fetched for row in rows),
        )
        for (_, operation, core), rows in groups.items()
    )
