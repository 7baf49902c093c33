"""Comments that silence findings.

A ``noqa`` comment, with or without codes, in the grammar of flake8 and ruff, where the beginning of
a code means its family; ``xladoctor: ignore[XLA101] reason`` for the line;
``xladoctor: file-ignore[XLA101]``, and ``noqa`` behind ``ruff:`` or ``flake8:``, for the file. Our
own directives name their codes: there is no blanket ``ignore``.
"""

from __future__ import annotations

import dataclasses
import io
import re
import tokenize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Finding, Location
    from xladoctor.lint.sources import Source

_CODES = r"[A-Z][0-9A-Z]*[0-9]+(?:[\s,]+[A-Z][0-9A-Z]*[0-9]+)*"
_NOQA = re.compile(rf"#\s*noqa\b(?:\s*:\s*(?P<codes>{_CODES})?)?", re.IGNORECASE)
_FILE_NOQA = re.compile(
    rf"^#\s*(?:ruff|flake8|xladoctor)\s*:\s*noqa\s*(?::\s*(?P<codes>{_CODES}))?\s*$", re.IGNORECASE
)
_OWN = re.compile(
    r"#\s*xladoctor:\s*(?P<what>ignore|file-ignore)\[(?P<codes>[^\]]*)\]", re.IGNORECASE
)
_CODE = re.compile(r"[A-Z][0-9A-Z]*[0-9]+", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Suppressions:
    """What the comments of a source silence.

    Attributes:
        lines: Row of the text to the beginnings of codes that are silent there; "" is all of them.
        file: Beginnings of codes that are silent in the whole file.
    """

    lines: dict[int, tuple[str, ...]]
    file: tuple[str, ...] = ()

    def hides(self, code: str, rows: Iterable[int]) -> bool:
        """Whether a finding of a code is silenced on one of the rows."""
        if any(code.startswith(item) for item in self.file):
            return True
        return any(code.startswith(item) for row in rows for item in self.lines.get(row, ()))


def parse(text: str) -> Suppressions:
    """Find the suppression comments of a text; text that does not tokenize has none."""
    lines: dict[int, tuple[str, ...]] = {}
    whole: tuple[str, ...] = ()
    if not re.search(r"noqa|xladoctor:", text, re.IGNORECASE):
        return Suppressions(lines)
    for row, comment in _comments(text):
        file_noqa = _FILE_NOQA.match(comment)
        if file_noqa is not None:
            whole += _listed(file_noqa["codes"])
            continue
        for own in _OWN.finditer(comment):
            codes = tuple(item.upper() for item in _CODE.findall(own["codes"]))
            if own["what"].lower() == "file-ignore":
                whole += codes
            else:
                lines[row] = lines.get(row, ()) + codes
        noqa = _NOQA.search(comment)
        if noqa is not None and "xladoctor:" not in comment.lower()[: noqa.start()]:
            lines[row] = lines.get(row, ()) + _noqa_codes(noqa)
    return Suppressions(lines, whole)


def apply(findings: Iterable[Finding], source: Source) -> list[Finding]:
    """The findings that no comment of the source silences.

    A comment counts on the finding's first row, on its last row, and on the last row of a
    multi-line string or statement that the finding stands in.
    """
    kept = list(findings)
    if not kept:
        return kept
    suppressions = parse(source.text)
    if not suppressions.lines and not suppressions.file:
        return kept
    ends = _statement_ends(source.text)
    return [
        finding
        for finding in kept
        if not suppressions.hides(finding.code, _rows(finding, source, ends))
    ]


def _rows(finding: Finding, source: Source, ends: dict[int, int]) -> Iterator[int]:
    place = finding.locations[0]
    shift = _shift(place, source)
    yield place.row + shift
    last = (place.end_row or place.row) + shift
    yield last
    yield ends.get(last, last)


def _shift(place: Location, source: Source) -> int:
    if place.cell is None:
        return 0
    cell = next((item for item in source.cells or () if item.index == place.cell), None)
    return cell.first - 1 if cell else 0


def _noqa_codes(match: re.Match[str]) -> tuple[str, ...]:
    if match["codes"]:
        return _listed(match["codes"])
    # A colon that no code follows silences nothing: it is a slip, not a blanket.
    return () if ":" in match[0] else ("",)


def _listed(codes: str | None) -> tuple[str, ...]:
    return tuple(item.upper() for item in _CODE.findall(codes)) if codes else ("",)


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError):
        return


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _statement_ends(text: str) -> dict[int, int]:
    """Row to the last row of the (logical) line that holds it, where they differ."""
    ends: dict[int, int] = {}
    first: int | None = None
    for token in _tokens(text):
        if token.type == tokenize.NEWLINE:
            if first is not None and first != token.start[0]:
                ends.update(dict.fromkeys(range(first, token.start[0]), token.start[0]))
            first = None
        elif first is None and token.type not in {
            tokenize.NL,
            tokenize.COMMENT,
            tokenize.INDENT,
            tokenize.DEDENT,
        }:
            first = token.start[0]
    return ends


def add_noqa(source: Source, findings: Iterable[Finding]) -> str:
    """The text with a ``# noqa`` comment on every line that has a finding (plain files only)."""
    wanted: dict[int, set[str]] = {}
    ends = _statement_ends(source.text)
    for finding in findings:
        last = finding.locations[0].end_row or finding.locations[0].row
        row = ends.get(last, last)
        wanted.setdefault(row, set()).add(finding.code)
    lines = re.split(r"(\r\n|\r|\n)", source.text)
    for row, codes in wanted.items():
        index = 2 * (row - 1)
        lines[index] = _with_codes(lines[index], codes)
    return "".join(lines)


def _with_codes(line: str, codes: set[str]) -> str:
    match = None
    for _, comment in _comments(line.strip() + "\n"):
        match = _NOQA.search(comment)
    if match is None or not match["codes"]:
        return f"{line.rstrip()}  # noqa: {', '.join(sorted(codes))}"
    place = line.rindex(match[0])
    merged = sorted({*_listed(match["codes"]), *codes})
    return line[:place] + f"# noqa: {', '.join(merged)}" + line[place + len(match[0]) :]
