"""Findings and fixes in the words of the Language Server Protocol.

Rows and columns of findings count from 1, columns in code points; those of the protocol from 0, in
units that client and server have agreed on (UTF-16 by default).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from xladoctor import catalogue, visible
from xladoctor.errors import XladoctorError
from xladoctor.findings import Severity
from xladoctor.server.documents import ROW_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pygls.workspace import PositionCodec

    from xladoctor.findings import Edit, Finding, Location, Position

_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
SOURCE = "xladoctor"


class Places:
    """Places of one text for the client.

    Args:
        text: The text.
        codec: How the client counts columns.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        ends = [match.end() for match in ROW_END.finditer(text)]
        self._lines = [
            text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)
        ]
        self._codec = codec

    def position(self, row: int, column: int) -> types.Position:
        """A place, held inside the text."""
        line = min(max(row, 1), len(self._lines)) - 1
        here = self._lines[line]
        column = min(max(column, 1), len(here.rstrip("\r\n")) + 1)
        return types.Position(line, self._codec.client_num_units(here[: column - 1]))

    def range(self, place: Location) -> types.Range:
        """The range of a finding; its whole line where no column is known."""
        row, end_row = place.row, place.end_row or place.row
        line = self._lines[min(row, len(self._lines)) - 1]
        indent = len(line) - len(line.lstrip())
        start = self.position(row, place.column or indent + 1)
        if place.end_column is None:
            return types.Range(start, self.position(row, len(line) + 1))
        return types.Range(start, self.position(end_row, place.end_column))

    def edit(self, start: Position, end: Position, content: str) -> types.TextEdit:
        """A replacement."""
        begin = self.position(start.row, start.column)
        return types.TextEdit(types.Range(begin, self.position(end.row, end.column)), content)

    def becomes(self, text: str) -> types.TextEdit:
        """What makes this text the other one: only the rows that differ."""
        before, after = self._lines, _lines(text)
        head = 0
        while head < min(len(before), len(after)) and before[head] == after[head]:
            head += 1
        tail = 0
        most = min(len(before), len(after)) - head
        while tail < most and before[-1 - tail] == after[-1 - tail]:
            tail += 1
        content = "".join(after[head : len(after) - tail])
        start = types.Position(head, 0)
        if head == len(before):
            start = self.position(len(before), len(before[-1]) + 1)
        last = len(before) - tail
        end = types.Position(last, 0)
        if last == len(before):
            end = self.position(last, len(before[-1]) + 1)
        return types.TextEdit(types.Range(start, end), content)


def _lines(text: str) -> list[str]:
    ends = [match.end() for match in ROW_END.finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def diagnostic(finding: Finding, places: Places, uris: Sequence[str]) -> types.Diagnostic:
    """A finding as editors show it.

    Args:
        finding: One with a line.
        places: Of the text that the line is in.
        uris: Of the document's texts, by cell.
    """
    message = visible.line(finding.message)
    if finding.suggestion:
        message += f"\nInstead: {visible.line(finding.suggestion)}"
    return types.Diagnostic(
        range=places.range(finding.locations[0]),
        message=message,
        severity=_SEVERITY[finding.severity],
        code=finding.code,
        code_description=_page_link(finding.code),
        source=SOURCE,
        related_information=[
            types.DiagnosticRelatedInformation(
                types.Location(_uri(place, finding, uris), _line(place)),
                visible.line(place.note or "see also"),
            )
            for place in finding.related
        ],
    )


def _page_link(code: str) -> types.CodeDescription | None:
    try:
        return types.CodeDescription(catalogue.page(code).url)
    except XladoctorError:
        return None


def _uri(place: Location, finding: Finding, uris: Sequence[str]) -> str:
    if place.filename == finding.locations[0].filename and (place.cell or 0) < len(uris):
        return uris[place.cell or 0]
    return Path(place.filename).absolute().as_uri()


def _line(place: Location) -> types.Range:
    """A related place by its row: the column would need the other file's text."""
    row = max(0, place.row - 1)
    return types.Range(types.Position(row, 0), types.Position(row, 0))


def hover(findings: Sequence[Finding], span: types.Range) -> types.Hover | None:
    """The pages of the rules that found something here."""
    texts = []
    for code in dict.fromkeys(finding.code for finding in findings):
        try:
            page = catalogue.page(code)
        except XladoctorError:
            continue
        said = [visible.line(finding.message) for finding in findings if finding.code == code]
        texts.append(f"**{code} {page.name}**: {said[0]}\n\n{page.body}\n[{page.url}]({page.url})")
    if not texts:
        return None
    content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(texts))
    return types.Hover(content, span)


def by_cell(edits: Sequence[Edit], places: Sequence[Places]) -> dict[int, list[types.TextEdit]]:
    """The edits of a fix by the cell that they are in (0 in a plain file)."""
    found: dict[int, list[types.TextEdit]] = {}
    for edit in edits:
        cell = edit.cell or 0
        if cell < len(places):
            found.setdefault(cell, []).append(places[cell].edit(edit.start, edit.end, edit.content))
    return found
