"""``Finding``, the one type in which everything that xladoctor finds ends.

``lint`` and ``diagnosis`` both make findings; :func:`merge` joins those that speak of the same
problem at the same place; every output format is a function of them.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Severity(str, enum.Enum):
    """``error``: wrong result, hang or crash; ``warning``: slow; ``info``: old style."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst, so that sorting by rank puts the worst first."""
        return list(Severity).index(self)


class Applicability(str, enum.Enum):
    """``safe``: proven to keep the meaning. ``unsafe``: right as a rule, look at it first."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Position:
    """A place in a text; both numbers count from 1, columns in code points."""

    row: int
    column: int


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """Replace what stands from ``start`` up to (not including) ``end`` with ``content``."""

    content: str
    start: Position
    end: Position
    cell: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fix:
    """What to type instead, as edits that belong together."""

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source.

    Attributes:
        filename: Path as the user gave it (lint) or as Python reported it (runtime).
        row: 1-based line; inside the cell for a notebook.
        column: 1-based column in code points; None when only the line is known (runtime).
        end_row, end_column: Where the place ends (exclusive column), if known.
        function: Name of the enclosing function, if known.
        cell: 0-based index in the notebook's ``cells``; None for a plain file.
        note: What this place has to do with the finding, for related places.
    """

    filename: str
    row: int
    column: int | None = None
    end_row: int | None = None
    end_column: int | None = None
    function: str | None = None
    cell: int | None = None
    note: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One problem at one or several places.

    Attributes:
        code: ``XLA`` and three digits.
        name: The rule's name, in kebab case.
        severity: See :class:`Severity`.
        message: What is wrong and what it costs here, in one line.
        suggestion: What to write instead, in one line; "" if nothing is known.
        locations: Where it is; the first is the main one; empty when no line is known.
        related: Why the rule believes it (the loop's line, where the tensor got its device).
        count: How often it happened, summed over the cores; None when not measured.
        seconds: Wall seconds it cost per core (mean); None when not measured.
        cores: The cores that it concerns; empty when not known.
        fix: What to type instead, if that is known exactly.
        confirmed_by: "lint", "runtime", "report": who says so.
        tpu_seconds: Seconds of one step that it costs on a TPU core, where the TPU compiler was
            asked and says so; None otherwise.
    """

    code: str
    name: str
    severity: Severity
    message: str
    suggestion: str = ""
    locations: tuple[Location, ...] = ()
    related: tuple[Location, ...] = ()
    count: int | None = None
    seconds: float | None = None
    cores: tuple[int, ...] = ()
    fix: Fix | None = None
    confirmed_by: tuple[str, ...] = ()
    tpu_seconds: float | None = None

    @property
    def place(self) -> tuple[str, int, int, int]:
        """File, cell, row, column, for sorting; places that are not known come last."""
        if not self.locations:
            return ("\uffff", 0, 0, 0)
        first = self.locations[0]
        return (first.filename, first.cell or 0, first.row, first.column or 0)


def capital(text: str) -> str:
    """A sentence with its capital, unless it begins with a name ("aten::silu", "train.py:3")."""
    first = text.partition(" ")[0]
    return text if set(first[:-1]) & set(":._/") else text[:1].upper() + text[1:]


def stable(message: str) -> str:
    """A message without its numbers, which change when lines move: for fingerprints."""
    return re.sub(r"\d+", "0", message)


def in_source_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by file, line and code: the order in which a linter shows them."""
    return sorted(findings, key=lambda finding: (finding.place, finding.code, finding.message))


def seconds(finding: Finding) -> float | None:
    """What a finding has cost in this run."""
    return finding.seconds


def by_cost(
    findings: Iterable[Finding], cost: Callable[[Finding], float | None] = seconds
) -> list[Finding]:
    """Findings with the worst severity first, then the dearest, then the most frequent."""
    return sorted(
        findings,
        key=lambda finding: (
            finding.severity.rank,
            -(cost(finding) or 0.0),
            -(finding.count or 0),
            finding.code,
            finding.place,
        ),
    )


def merge(static: Iterable[Finding], measured: Iterable[Finding]) -> list[Finding]:
    """Join what the linter says with what the run showed.

    A pair joins when one line is a main place of both and the codes are equal or of one kin: the
    run sees that a line waited for the device or that a size depends on the data, the linter sees
    by which idiom, so its code is the more precise. The joined finding keeps the measured count,
    seconds and cores and the linter's columns, fix and related places.

    File names are compared as they stand: the caller makes them comparable first.
    """
    waiting = list(measured)
    joined: list[Finding] = []
    for finding in static:
        partner = next((other for other in waiting if _same_problem(finding, other)), None)
        if partner is None:
            joined.append(finding)
            continue
        waiting.remove(partner)
        joined.append(_join(finding, partner))
    return joined + waiting


#: Beginnings of codes that name one thing the run can see: host syncs, data-dependent sizes.
_KIN: tuple[tuple[str, ...], ...] = (("XLA1",), ("XLA201", "XLA202", "XLA204"))


def _same_problem(static: Finding, measured: Finding) -> bool:
    same = any(
        static.code.startswith(family) and measured.code.startswith(family)
        for family in (static.code, "XLA1")
    )
    # The run sees which operation makes sizes of its own, the linter by which idiom.
    sized = ("XLA201", "XLA202")
    if not same and not (static.code in sized and measured.code in sized):
        return False
    if not static.locations or not measured.locations:
        return False
    first = static.locations[0]
    last_row = first.end_row or first.row
    if static.code == "XLA301":
        # The linter names the loop; the run knows a line in it at which something ends the graph.
        ends = [place.row for place in static.related if place.filename == first.filename]
        last_row = max([last_row, *ends])
    return any(
        place.filename == first.filename
        and place.cell == first.cell
        and first.row <= place.row <= last_row
        for place in measured.locations
    )


def _join(static: Finding, measured: Finding) -> Finding:
    rest = tuple(
        place
        for place in measured.locations
        if (place.filename, place.row) != (static.locations[0].filename, static.locations[0].row)
    )
    function = next((p.function for p in measured.locations if p.function), None)
    main = dataclasses.replace(
        static.locations[0], function=static.locations[0].function or function
    )
    return dataclasses.replace(
        static,
        message=measured.message,
        suggestion=static.suggestion or measured.suggestion,
        locations=(main, *static.locations[1:], *rest),
        count=measured.count,
        seconds=measured.seconds,
        cores=measured.cores,
        severity=min((static.severity, measured.severity), key=lambda severity: severity.rank),
        confirmed_by=("runtime", "lint"),
    )
