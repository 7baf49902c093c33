"""The tables of ``docs/data.md``, out of ``xladoctor.columns``: ``python -m tests.data_page``."""

from __future__ import annotations

import re
from pathlib import Path

from xladoctor.columns import TABLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "data.md"


def table(name: str) -> str:
    """One table of the page."""
    rows = [f"| `{c.name}` | {c.kind} | {c.unit} | {c.text} |" for c in TABLES[name]]
    return "\n".join(["| column | type | unit | holds |", "|---|---|---|---|", *rows]) + "\n"


def filled(page: str) -> str:
    """The page with its tables as they should be."""
    marked = re.compile(r"(<!-- columns of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return marked.sub(lambda found: found[1] + table(found[2]) + found[3], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
