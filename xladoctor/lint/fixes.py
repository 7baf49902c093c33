"""Applying fixes: text edits, pass by pass until nothing changes, and writing the result."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.findings import Applicability
from xladoctor.lint import sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Edit, Finding, Position
    from xladoctor.lint.engine import Result
    from xladoctor.lint.sources import Source

#: Each pass resolves at least one overlap; more than a few only happen if two fixes fight.
MAX_PASSES = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """A source after its fixes.

    Attributes:
        data: The file's new bytes.
        applied: How many fixes were made.
        result: What is found in the new text.
        stable: False if fixes still change the text after the last pass.
    """

    data: bytes
    applied: int
    result: Result
    stable: bool = True


def fix(
    data: bytes,
    filename: str,
    lint: Callable[[Source], Result],
    *,
    unsafe: bool = False,
) -> Fixed:
    """Apply the fixes of a file until its text is stable.

    A pass after which the file no longer parses is thrown away with all that follows.

    Args:
        data: The file's bytes.
        filename: Its name; a notebook's cells are edited one by one.
        lint: Gives the findings of a source (selected and not suppressed).
        unsafe: Also apply fixes that may change the meaning.
    """
    source = sources.from_bytes(data, filename)
    result = lint(source)
    applied = 0
    for _ in range(MAX_PASSES):
        chosen = [item for item in result.findings if is_applicable(item, unsafe=unsafe)]
        edits, count = select(chosen)
        if not count:
            return Fixed(data, applied, result)
        changed = apply_to_file(data, source, edits)
        if changed is None or changed == data:
            return Fixed(data, applied, result)
        after = sources.from_bytes(changed, filename)
        if len(after.unreadable) > len(source.unreadable) or not _parses(after, source):
            return Fixed(data, applied, result)
        data, source = changed, after
        applied += count
        result = lint(source)
    left = any(is_applicable(item, unsafe=unsafe) for item in result.findings)
    return Fixed(data, applied, result, stable=not left)


def is_applicable(finding: Finding, *, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied."""
    return finding.fix is not None and (unsafe or finding.fix.applicability is Applicability.SAFE)


def select(findings: Iterable[Finding]) -> tuple[list[Edit], int]:
    """Edits of the fixes that do not overlap, first come first; the others wait for the next pass.

    Two fixes that insert the same text at the same place (an import) share the insertion.
    """
    taken: list[Edit] = []
    count = 0
    for finding in findings:
        assert finding.fix is not None
        fresh = [edit for edit in dict.fromkeys(finding.fix.edits) if edit not in taken]
        if any(_overlap(edit, other) for edit in fresh for other in taken):
            continue
        taken.extend(fresh)
        count += 1
    return taken, count


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap to a text; rows and columns are those of the text before."""
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    newline = _newline(text)

    def offset(place: Position) -> int:
        if place.row > len(starts):
            return len(text)
        return min(starts[place.row - 1] + place.column - 1, len(text))

    for edit in sorted(edits, key=lambda item: (item.start, item.end), reverse=True):
        content = edit.content.replace("\n", newline)
        begin = offset(edit.start)
        if begin == len(text) and content.endswith(newline) and text and text[-1] not in "\r\n":
            content = newline + content
        text = text[:begin] + content + text[offset(edit.end) :]
    return text


def apply_to_file(data: bytes, source: Source, edits: Sequence[Edit]) -> bytes | None:
    """The file's bytes after the edits; None if they cannot be written in its encoding."""
    if source.cells is not None:
        return _apply_to_notebook(data, edits)
    try:
        return apply(source.text, edits).encode(source.encoding)
    except UnicodeEncodeError:
        return None


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step: written beside it and renamed, mode kept, links followed."""
    target = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _overlap(one: Edit, other: Edit) -> bool:
    if one.cell != other.cell:
        return False
    if one.start == other.start:
        return True  # two insertions at one place have no order
    first, second = sorted((one, other), key=lambda item: item.start)
    return second.start < first.end


def _parses(after: Source, before: Source) -> bool:
    if after.cells is not None:
        return True  # each cell was parsed while it was read
    return sources.syntax_error(after.text) is None or sources.syntax_error(before.text) is not None


def _newline(text: str) -> str:
    found = re.search(r"\r\n|\r|\n", text)
    return found[0] if found else "\n"


def _apply_to_notebook(data: bytes, edits: Sequence[Edit]) -> bytes | None:
    text = data.decode("utf-8-sig")
    document = json.loads(text)
    cells = document.get("cells")
    if cells is None:
        return None  # the old form (version 3) is linted, not rewritten
    by_cell: dict[int, list[Edit]] = {}
    for edit in edits:
        if edit.cell is None:
            return None
        by_cell.setdefault(edit.cell, []).append(edit)
    for index, cell_edits in by_cell.items():
        old = cells[index]["source"]
        new = apply(old if isinstance(old, str) else "".join(old), cell_edits)
        cells[index]["source"] = new if isinstance(old, str) else new.splitlines(keepends=True)
    indent = re.match(r"\s*\{\r?\n(?P<indent>[ \t]+)", text)
    body = json.dumps(
        document,
        ensure_ascii=False,
        indent=indent["indent"] if indent else None,
        separators=None if indent else (",", ":"),
    )
    return (body + ("\n" if text.endswith("\n") else "")).encode("utf-8")
