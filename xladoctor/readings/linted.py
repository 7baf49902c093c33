"""What the linter said of a run's sources when they ran, as ``profile`` kept it: ``lint.json``.

A report made later, on another machine or after the files have changed, has the same findings.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from xladoctor.findings import Finding, Location, unpacked

if TYPE_CHECKING:
    from pathlib import Path

NAME = "lint.json"
#: The largest file of this kind (bytes); a large project's is below 1 MB.
_LARGEST = 32 * 2**20
_CODE = re.compile(r"[A-Z]{2,10}\d{3}")
_BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def read(path: Path, notes: list[str]) -> tuple[Finding, ...] | None:
    """The linter's findings of a run directory; None if it was recorded without the linter.

    Args:
        path: The run directory.
        notes: Gets a sentence if they cannot be read.
    """
    file = path / NAME
    if not file.is_file():
        return None
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError
        return tuple(_checked(unpacked(entry)) for entry in json.loads(file.read_text("utf-8")))
    except _BROKEN:
        notes.append(f"{NAME} cannot be read: what the linter said of this run is left out")
        return ()


def _checked(finding: Finding) -> Finding:
    """A finding whose values are what they should be.

    Raises:
        ValueError: One is not.
    """
    texts = (finding.code, finding.name, finding.message, finding.suggestion)
    places = (*finding.locations, *finding.related)
    if not all(isinstance(text, str) for text in texts) or not _CODE.fullmatch(finding.code):
        raise ValueError
    if not finding.locations or not all(_is_place(place) for place in places):
        raise ValueError
    # What the run says itself is not the linter's to say.
    return dataclasses.replace(
        finding, count=None, seconds=None, cores=(), confirmed_by=("lint",), ran=None
    )


def _is_place(place: Location) -> bool:
    numbers = (place.column, place.end_row, place.end_column, place.cell)
    texts = (place.function, place.note)
    return (
        isinstance(place.filename, str)
        and _whole(place.row)
        and all(value is None or _whole(value) for value in numbers)
        and all(value is None or isinstance(value, str) for value in texts)
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
