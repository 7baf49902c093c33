"""Which findings of the linter are of code that this run did not come to.

A run leaves no trace of every line, but of all that the linter warns of in some families: a read of
a device value, an operation on the CPU, the end of a graph. Where that was recorded and none is of
the line (or of the function), this run has not come to it. Of all other findings nobody knows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import Frame

#: Reads of device values; those that need no value of the device (XLA112: a clock) are left out.
_READS = ("XLA101", "XLA102", "XLA103", "XLA104", "XLA105", "XLA106", "XLA108", "XLA109", "XLA113")
_FALLBACKS = ("XLA501", "XLA503")

Line = tuple[str, int]


def marked(findings: Iterable[Finding], run: RunFacts | None) -> list[Finding]:
    """Findings with ``ran`` set where the run tells it.

    Args:
        findings: What was joined: of the linter alone, of the run, or of both.
        run: The run; without one nothing is known.
    """
    if run is None or not run.step_count:
        return list(findings)
    reads = _lines(run, (row.frames for row in run.syncs))
    fallbacks = _lines(run, (row.frames for row in run.fallbacks))
    out = []
    for finding in findings:
        ran = finding.ran
        if finding.confirmed_by != ("lint",):
            ran = True
        elif finding.code in _READS:
            # Some reads are seen as operations on the CPU.
            ran = _met(finding, reads | fallbacks)
        elif finding.code in _FALLBACKS:
            ran = _met(finding, fallbacks)
        out.append(dataclasses.replace(finding, ran=ran))
    return out


def _lines(run: RunFacts, sites: Iterable[tuple[Frame, ...]]) -> set[Line]:
    """All lines of some places, callers included."""
    return {
        (place.filename, place.row)
        for frames in set(sites)
        for frame in frames
        if (place := run.place((frame,))) is not None
    }


def _met(finding: Finding, lines: set[Line]) -> bool | None:
    """Whether a line of the finding's statement is among them; None where that cannot be told."""
    main: Location | None = next(iter(finding.locations), None)
    if main is None or main.cell is not None:
        return None
    return any(
        (main.filename, row) in lines for row in range(main.row, (main.end_row or main.row) + 1)
    )
