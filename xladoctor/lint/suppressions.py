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

from xladoctor import patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Finding, Location
    from xladoctor.lint.sources import Source

_CODES = r"[A-Z][0-9A-Z]*[0-9]+(?:[\s,]+[A-Z][0-9A-Z]*[0-9]+)*"
_NOQA = patterns.lazy(rf"#\s*noqa\b(?:\s*:\s*(?P<codes>{_CODES})?)?", re.IGNORECASE)
_FILE_NOQA = patterns.lazy(
    rf"^#\s*(?:ruff|flake8|xladoctor)\s*:\s*noqa\s*(?::\s*(?P<codes>{_CODES}))?\s*$", re.IGNORECASE
)
_OWN = patterns.lazy(
    r"#\s*xladoctor:\s*(?P<what>ignore|file-ignore)\[(?P<codes>[^\]]*)\]", re.IGNORECASE
)
_CODE = patterns.lazy(r"[A-Z][0-9A-Z]*[0-9]+", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Directive:
    """One suppression comment, or the part of a comment that is one.

    Attributes:
        row: Its row of the text.
        start, end: Its columns (0-based, exclusive end); what follows in the comment is a reason.
        codes: The beginnings of codes it names, in capitals; "" is all of them.
        whole: Whether it counts for the whole file.
        opening: What stands before the codes ("# noqa: ").
        closing: What stands after them ("]").
    """

    row: int
    start: int
    end: int
    codes: tuple[str, ...]
    whole: bool = False
    opening: str = ""
    closing: str = ""


@dataclasses.dataclass(slots=True)
class Suppressions:
    """What the comments of a source silence, and which of them did.

    Attributes:
        directives: All of them, in source order.
        used: Those that silenced something, each with the code it names.
    """

    directives: tuple[Directive, ...] = ()
    used: set[tuple[Directive, str]] = dataclasses.field(default_factory=set)

    def hides(self, code: str, rows: Iterable[int]) -> bool:
        """Whether a finding of a code is silenced on one of the rows; remembers by what."""
        wanted = set(rows)
        found = [
            (directive, item)
            for directive in self.directives
            if directive.whole or directive.row in wanted
            for item in directive.codes
            if code.startswith(item)
        ]
        self.used.update(found)
        return bool(found)


def parse(text: str) -> Suppressions:
    """Find the suppression comments of a text; text that does not tokenize has none."""
    if not re.search(r"noqa|xladoctor:", text, re.IGNORECASE):
        return Suppressions()
    return Suppressions(
        tuple(
            directive
            for row, column, comment in _comments(text)
            for directive in _directives(row, column, comment)
        )
    )


def _directives(row: int, column: int, comment: str) -> Iterator[Directive]:
    file_noqa = _FILE_NOQA.match(comment)
    if file_noqa is not None:
        yield _directive(row, column, file_noqa, _listed(file_noqa["codes"]), whole=True)
        return
    for own in _OWN.finditer(comment):
        codes = tuple(item.upper() for item in _CODE.findall(own["codes"]))
        yield _directive(row, column, own, codes, whole=own["what"].lower() == "file-ignore")
    noqa = _NOQA.search(comment)
    if noqa is not None and "xladoctor:" not in comment.lower()[: noqa.start()]:
        yield _directive(row, column, noqa, _noqa_codes(noqa), whole=False)


def _directive(
    row: int, column: int, match: re.Match[str], codes: tuple[str, ...], *, whole: bool
) -> Directive:
    first, last = match.span("codes")
    known = first >= 0
    return Directive(
        row,
        column + match.start(),
        column + match.end(),
        codes,
        whole,
        match.string[match.start() : first] if known else "",
        match.string[last : match.end()] if known else "",
    )


def apply(
    findings: Iterable[Finding], source: Source, known: Suppressions | None = None
) -> list[Finding]:
    """The findings that no comment of the source silences.

    A comment counts on the finding's first row, on its last row, and on the last row of a
    multi-line string or statement that the finding stands in.

    Args:
        findings: All that were found.
        source: Where.
        known: The comments of the source, which remember what they silenced.
    """
    kept = list(findings)
    if not kept:
        return kept
    suppressions = parse(source.text) if known is None else known
    if not suppressions.directives:
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


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    """Row, column (0-based) and text of each comment."""
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            yield *token.start, token.string


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
    for _, _, comment in _comments(line.strip() + "\n"):
        match = _NOQA.search(comment)
    if match is None or not match["codes"]:
        return f"{line.rstrip()}  # noqa: {', '.join(sorted(codes))}"
    place = line.rindex(match[0])
    merged = sorted({*_listed(match["codes"]), *codes})
    return line[:place] + f"# noqa: {', '.join(merged)}" + line[place + len(match[0]) :]
