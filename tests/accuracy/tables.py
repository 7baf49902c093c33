"""Tables that measures write into pages, between two marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def put(page: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Write lines in place of those between the marks of a page.

    Raises:
        ValueError: The page has not both marks, once.
    """
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    table = "\n".join(lines)
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
