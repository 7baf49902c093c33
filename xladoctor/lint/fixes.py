"""Applying fixes: text edits, pass by pass until nothing changes, and writing the result."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.findings import Applicability
from xladoctor.lint import notebooks, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Edit, Finding, Position
    from xladoctor.lint.asked import Result
    from xladoctor.lint.sources import Source

#: Each pass resolves at least one overlap; more than a few only happen if two fixes fight.
MAX_PASSES = 25


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """A source after its fixes.

    Attributes:
        data: The file's new bytes.
        made: The findings whose fixes were made, in the order of making.
        result: What is found in the new text.
        stable: False if fixes still change the text after the last pass.
    """

    data: bytes
    made: tuple[Finding, ...]
    result: Result
    stable: bool = True

    @property
    def applied(self) -> int:
        """How many fixes were made."""
        return len(self.made)


def fix(
    data: bytes,
    filename: str,
    lint: Callable[[Source], Result],
    *,
    unsafe: bool = False,
    fixable: Callable[[Finding], bool] = lambda _: True,
) -> Fixed:
    """Apply the fixes of a file until its text is stable.

    A fix after which the file no longer parses is left out, the others are made.

    Args:
        data: The file's bytes.
        filename: Its name; a notebook's cells are edited one by one.
        lint: Gives the findings of a source (selected and not suppressed).
        unsafe: Also apply fixes that may change the meaning.
        fixable: Whether the user wants the fix of a finding.
    """
    source = sources.from_bytes(data, filename)
    result = lint(source)
    made: list[Finding] = []

    def wanted() -> list[Finding]:
        found = (item for item in result.findings if is_applicable(item, unsafe=unsafe))
        return [item for item in found if fixable(item)]

    for _ in range(MAX_PASSES):
        step = _pass(data, source, wanted())
        if step is None:
            return Fixed(data, tuple(made), _without_fixes(result, wanted()))
        data, source, fixed = step
        made.extend(fixed)
        result = lint(source)
    return Fixed(data, tuple(made), result, stable=not wanted())


def _without_fixes(result: Result, unmade: Sequence[Finding]) -> Result:
    """What is found, where fixes that cannot be made are not promised once more."""
    if not unmade:
        return result
    left = tuple(
        dataclasses.replace(item, fix=None) if item in unmade else item for item in result.findings
    )
    return dataclasses.replace(result, findings=left)


def _pass(
    data: bytes, source: Source, findings: Sequence[Finding]
) -> tuple[bytes, Source, list[Finding]] | None:
    """One pass: the new bytes, their source and what was fixed; None if nothing could be."""
    made = _try(data, source, findings)
    if made is None and len(findings) > 1:
        # One of the fixes spoils the file: make those that do no harm on their own.
        harmless = [item for item in findings if _try(data, source, [item]) is not None]
        made = _try(data, source, harmless)
        while made is None and len(harmless) > 1:
            # Two of them empty one block: some now, the others in the next pass.
            harmless = harmless[: len(harmless) // 2]
            made = _try(data, source, harmless)
    return made


def _try(
    data: bytes, source: Source, findings: Sequence[Finding]
) -> tuple[bytes, Source, list[Finding]] | None:
    chosen, edits = select(findings)
    changed = apply_to_file(data, source, edits) if chosen else None
    if changed is None or changed == data:
        return None
    after = sources.from_bytes(changed, source.filename)
    if len(after.unreadable) > len(source.unreadable) or not _parses(after, source):
        return None
    return changed, after, chosen


def is_applicable(finding: Finding, *, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied."""
    return finding.fix is not None and (unsafe or finding.fix.applicability is Applicability.SAFE)


def select(findings: Iterable[Finding]) -> tuple[list[Finding], list[Edit]]:
    """The findings whose fixes do not overlap, first come first, and their edits.

    The others wait for the next pass. Two fixes that insert the same text at the same place (an
    import) share the insertion.
    """
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for finding in findings:
        assert finding.fix is not None
        fresh = [edit for edit in dict.fromkeys(finding.fix.edits) if edit not in taken]
        if any(_overlap(edit, other) for edit in fresh for other in taken):
            continue
        taken.extend(fresh)
        chosen.append(finding)
    return chosen, taken


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
        return notebooks.replace_sources(data, _by_cell(edits))
    # What the shell is told in it is no Python, and stays as it is written.
    text = sources.decode(data)[0] if source.shell else source.text
    try:
        return apply(text, edits).encode(source.encoding)
    except UnicodeEncodeError:
        return None


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step: written beside it and renamed, mode kept, links followed.

    Raises:
        OSError: The file or its folder is read-only, or the disk is full; the file is as it was.
    """
    target = Path(os.path.realpath(path))
    if not target.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        # Renaming over it would work where the folder allows it, against the user's will.
        raise PermissionError(errno.EACCES, "the file is read-only", str(target))
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


def _by_cell(edits: Sequence[Edit]) -> dict[int, Callable[[str], str]]:
    """How to edit each cell of a notebook that has edits."""
    cells: dict[int, list[Edit]] = {}
    for edit in edits:
        assert edit.cell is not None, "an edit of a notebook names its cell"
        cells.setdefault(edit.cell, []).append(edit)
    return {index: functools.partial(apply, edits=own) for index, own in cells.items()}
