"""The linter's findings as workflow commands, which GitHub shows beside the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.findings import Finding

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(findings: Iterable[Finding]) -> str:
    """One ``::error ...::`` line per finding."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    place = finding.locations[0]
    if place.cell is not None:
        # A notebook's file is JSON: GitHub could only mark a wrong line of it.
        where = {"file": place.filename}
        prefix = f"{place.filename}:cell {place.cell + 1}:{place.row}:{place.column}"
    else:
        where = {"file": place.filename, "line": str(place.row)}
        if place.end_row is not None:
            where["endLine"] = str(place.end_row)
        if place.end_row == place.row and place.end_column is not None:
            where.update(col=str(place.column), endColumn=str(place.end_column))
        prefix = f"{place.filename}:{place.row}:{place.column}"
    options = ",".join(
        f"{key}={_escape(value, ',:')}"
        for key, value in {"title": f"xladoctor ({finding.code})", **where}.items()
    )
    help_text = f" ({finding.suggestion})" if finding.suggestion else ""
    text = _escape(f"{prefix}: {finding.code} {finding.message}{help_text}")
    return f"::{_LEVELS[finding.severity]} {options}::{text}"


def _escape(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
