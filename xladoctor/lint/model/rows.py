"""The rows of a text, and what stands where Python's parser says: it counts columns in bytes."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = re.compile(r"\r\n|\r|\n")


class Rows:
    """The rows of a text.

    Attributes:
        text: The text.
        lines: Its rows, without what ends them.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: Sequence[str] = _END.split(text) if "\r" in text else text.split("\n")
        self._ascii = text.isascii()

    @functools.cached_property
    def starts(self) -> Sequence[int]:
        """Where each row begins in the text."""
        if "\r" in self.text:
            return [0, *(match.end() for match in _END.finditer(self.text))]
        return [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]

    def column(self, row: int, offset: int) -> int:
        """The column (from 0) of what stands so many bytes behind the beginning of a row."""
        if self._ascii:
            return offset
        line = self.lines[row - 1]
        return offset if line.isascii() else len(line.encode()[:offset].decode())

    def before(self, row: int, offset: int) -> str:
        """What stands in a row before what stands so many bytes behind its beginning."""
        return self.lines[row - 1][: self.column(row, offset)]

    def text_of(self, node: Any) -> str:
        """What a node of Python's parser was made of."""
        row: int = node.lineno
        last: int = node.end_lineno
        start: int = node.col_offset
        end: int = node.end_col_offset
        if not self._ascii:
            start, end = self.column(row, start), self.column(last, end)
        if row == last:
            return self.lines[row - 1][start:end]
        return self.text[self.starts[row - 1] + start : self.starts[last - 1] + end]
