"""Words that people do not use for these things stay out of code, messages and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: What was said once, and what is said now.
INSTEAD = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bdearest\b": "most costly",
    r"\bcompile[sd]? (for itself|again and again)\b": "triggers its own compilation; recompiles",
    r"\bheld each core up\b": "blocked each core",
    r"\bsame graphs come again\b": "graphs are reused",
    r"\bmiddle halves\b": "interquartile ranges",
}
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "rules").glob("*.md")),
    *sorted((ROOT / "xladoctor").rglob("*.py")),
]


@pytest.mark.parametrize("old", INSTEAD)
def test_old_words_stay_out(old):
    told = [
        f"{path.relative_to(ROOT)}:{row}: write {INSTEAD[old]}"
        for path in FILES
        for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(old, line)
    ]
    assert told == []
