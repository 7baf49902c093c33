"""Regular expressions that are compiled when they are first asked.

Python takes as long to compile those of the linter as to parse a file of some hundred lines, and
most runs ask few of them. Where a pattern is asked by every run, ``re.compile`` says so.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Lazy:
    """Stands for a pattern until somebody asks it."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)  # so this is asked once for each method
        return found


def lazy(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern; that it is none shows at its first use."""
    return cast("re.Pattern[str]", _Lazy(text, flags))
