"""``Finding``, the one type in which everything that xladoctor finds ends.

``lint`` and ``diagnosis`` both make findings; :func:`merge` joins those that speak of the same
problem at the same place; every output format is a function of them.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


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

    @property
    def inside(self) -> str:
        """``line 52``, ``cell 3, line 6``: where in its file, as people count (cells from 1)."""
        line = f"line {self.row}"
        return line if self.cell is None else f"cell {self.cell + 1}, {line}"

    @property
    def at(self) -> str:
        """``train.py:52``, ``n.ipynb:cell 3:6``: file and line, as people count."""
        cell = "" if self.cell is None else f"cell {self.cell + 1}:"
        return f"{self.filename}:{cell}{self.row}"

    @property
    def exactly(self) -> str:
        """:attr:`at` with the column, where that is known."""
        return self.at if self.column is None else f"{self.at}:{self.column}"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One problem at one or several places.

    Attributes:
        code: ``XLA`` and three digits.
        name: The rule's name, in kebab case.
        severity: See :class:`Severity`.
        message: What is wrong and what it costs here, in one line.
        suggestion: What to write instead, in one line; "" if nothing is known.
        locations: The line that a person changes; empty when no line is known. More than one only
            where the same change is needed at each.
        related: Other places, each with what it has to do with the finding: where the graph ends,
            the loop, further lines that show it, why the rule believes it.
        count: How often it happened, summed over the cores; None when not measured.
        seconds: Wall seconds it cost per core (mean); None when not measured.
        cores: The cores that it concerns; empty when not known.
        fix: What to type instead, if that is known exactly.
        confirmed_by: "lint", "runtime", "report": who says so.
        ran: Whether the run came to this line; None where that is not known.
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
    ran: bool | None = None
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


def position_to_json(position: Position) -> dict[str, int]:
    """``{"row": ..., "column": ...}``."""
    return {"row": position.row, "column": position.column}


def fix_to_json(fix: Fix | None) -> dict[str, Any] | None:
    """A fix as the contract writes it."""
    if fix is None:
        return None
    return {
        "applicability": fix.applicability.value,
        "message": fix.message,
        "edits": [
            {
                "cell": edit.cell,
                "content": edit.content,
                "location": position_to_json(edit.start),
                "end_location": position_to_json(edit.end),
            }
            for edit in fix.edits
        ],
    }


def packed(finding: Finding) -> dict[str, Any]:
    """A finding as plain data that JSON can hold, for :func:`unpacked`."""
    fix = finding.fix
    return {
        **_fields_of(finding),
        "locations": [_fields_of(place) for place in finding.locations],
        "related": [_fields_of(place) for place in finding.related],
        "fix": None if fix is None else _packed_fix(fix),
    }


def _packed_fix(fix: Fix) -> dict[str, Any]:
    edits = [
        {**_fields_of(edit), "start": _fields_of(edit.start), "end": _fields_of(edit.end)}
        for edit in fix.edits
    ]
    return {**_fields_of(fix), "edits": edits}


def _fields_of(item: Any) -> dict[str, Any]:
    """The fields of a data class; ``dataclasses.asdict`` copies what is in them, and takes long."""
    return {name: getattr(item, name) for name in type(item).__slots__}


def unpacked(entry: Mapping[str, Any]) -> Finding:
    """The finding that :func:`packed` made into plain data.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    fix = entry["fix"]
    return Finding(
        **{
            **entry,
            "severity": Severity(entry["severity"]),
            "locations": tuple(Location(**item) for item in entry["locations"]),
            "related": tuple(Location(**item) for item in entry["related"]),
            "cores": tuple(entry["cores"]),
            "confirmed_by": tuple(entry["confirmed_by"]),
            "fix": _unpacked_fix(fix) if fix is not None else None,
        }
    )


def _unpacked_fix(entry: Mapping[str, Any]) -> Fix:
    edits = (
        Edit(item["content"], Position(**item["start"]), Position(**item["end"]), item["cell"])
        for item in entry["edits"]
    )
    return Fix(Applicability(entry["applicability"]), entry["message"], tuple(edits))


def in_source_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by file, line and code: the order in which a linter shows them."""
    return sorted(findings, key=lambda finding: (finding.place, finding.code, finding.message))


def merge(
    static: Iterable[Finding],
    measured: Iterable[Finding],
    same: Mapping[str, Collection[str]] | None = None,
) -> list[Finding]:
    """Join what the linter says with what the run showed.

    A pair joins when both speak of one line and the codes are equal or of one kin: the run sees
    that a line waited for the device or that it made a graph new, the linter sees by which idiom,
    so its code is the more precise. The joined finding keeps the measured count, seconds and cores
    and the linter's columns, fix and related places.

    File names are compared as they stand: the caller makes them comparable first.

    Args:
        static: What the linter says.
        measured: What the run showed.
        same: Code of the linter to the codes by which a run sees the same problem
            (``catalogue.same_problems()``).
    """
    same = same or {}
    waiting = list(measured)
    findings = list(static)
    # One code before what is only of one kin, whichever finding comes first.
    for equal in (True, False):
        for index, finding in enumerate(findings):
            partners = [
                other
                for other in waiting
                if (finding.code == other.code) is equal and _same_problem(finding, other, same)
            ]
            if not partners or "runtime" in finding.confirmed_by:
                continue
            # One line before what is only near.
            partner = min(partners, key=lambda other: _apart(finding, other))
            waiting.remove(partner)
            findings[index] = _join(finding, partner)
    return _once_a_line(findings) + waiting


def _once_a_line(findings: list[Finding]) -> list[Finding]:
    """Without what the linter says once more of a line that the run has confirmed for its code.

    ``x, y = torch.randn(2), torch.randn(2)`` is two places to the linter, and one to the run.
    """

    def key(finding: Finding) -> tuple[object, ...]:
        first = finding.locations[0]
        return finding.code, first.filename, first.cell, first.row

    confirmed = {key(one) for one in findings if "runtime" in one.confirmed_by and one.locations}
    return [
        one
        for one in findings
        if "runtime" in one.confirmed_by or not one.locations or key(one) not in confirmed
    ]


def _apart(static: Finding, measured: Finding) -> bool:
    first = static.locations[0]
    return not any(_within(first, place, _last_row(static)) for place in measured.locations)


def _same_problem(static: Finding, measured: Finding, same: Mapping[str, Collection[str]]) -> bool:
    if not static.locations:
        return False
    first, last_row = static.locations[0], _last_row(static)
    if static.code != measured.code:
        # The run's line may be part of a statement that the linter knows as a whole.
        kin = measured.code in same.get(static.code, ())
        return kin and any(_within(first, at, last_row) for at in measured.locations)
    if static.code == "XLA301":
        # The linter names the loop and its step; the run knows a line that steps or ends the graph.
        rows = [
            place.row
            for place in static.related
            if (place.filename, place.cell) == (first.filename, first.cell)
        ]
        first = dataclasses.replace(first, row=min([first.row, *rows]))
        last_row = max([last_row, *rows])
    places = (*measured.locations, *measured.related)
    if static.code == "XLA420":
        # The linter names the way out of the loop, the run where the others waited.
        named = {(place.filename, place.cell, place.row) for place in static.related}
        if any((place.filename, place.cell, place.row) in named for place in places):
            return True
    return any(_within(first, place, last_row) for place in places)


def _last_row(finding: Finding) -> int:
    first = finding.locations[0]
    return first.end_row or first.row


def _within(first: Location, place: Location, last_row: int) -> bool:
    return (
        place.filename == first.filename
        and place.cell == first.cell
        and first.row <= place.row <= last_row
    )


def _join(static: Finding, measured: Finding) -> Finding:
    main = static.locations[0]
    seen = {(main.filename, main.cell, main.row)}
    related = []
    for place in (*measured.locations, *measured.related, *static.related):
        key = (place.filename, place.cell, place.row)
        if key not in seen:
            seen.add(key)
            related.append(place if place.note else dataclasses.replace(place, note="seen here"))
    function = next((p.function for p in measured.locations if p.function), None)
    return dataclasses.replace(
        static,
        message=measured.message,
        suggestion=static.suggestion or measured.suggestion,
        locations=(dataclasses.replace(main, function=main.function or function),),
        related=tuple(related),
        count=measured.count,
        seconds=measured.seconds,
        cores=measured.cores,
        # Of one problem the run knows how grave it was; of equivalent codes, each has seen a part.
        severity=measured.severity
        if static.code == measured.code
        else min((static.severity, measured.severity), key=lambda severity: severity.rank),
        confirmed_by=("runtime", "lint"),
    )
