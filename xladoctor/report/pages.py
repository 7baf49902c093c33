"""Rule pages for reading: the few forms of Markdown that the catalogue uses, as plain data.

The template turns the data into HTML and escapes all of it, so a page can never inject anything.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.catalogue import Page

_HEADING = re.compile(r"^#{2,4} (?P<text>.+)$")
_LIST = re.compile(r"^\s*[-*] (?P<text>.+)$")
#: What a reader of a report needs of a page; tests and references are for maintainers.
_LEFT_OUT = {"Tests", "References"}


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A part of a page: "heading", "text", "item" or "code"."""

    kind: str
    text: str

    @property
    def spans(self) -> list[tuple[bool, str]]:
        """The text in runs: whether it is code, and the run."""
        parts = self.text.replace("**", "").split("`")
        return [(bool(index % 2), part) for index, part in enumerate(parts) if part]


@dataclasses.dataclass(frozen=True, slots=True)
class PageText:
    """A rule's page as blocks."""

    code: str
    name: str
    summary: str
    url: str
    blocks: tuple[Block, ...]


def page_text(page: Page) -> PageText:
    """The blocks of a page, without its title, TOML, tests and references."""
    blocks: list[Block] = []
    paragraph: list[str] = []
    code: list[str] | None = None
    fence = heading = ""

    def close() -> None:
        if paragraph:
            blocks.append(Block("text", " ".join(paragraph)))
            paragraph.clear()

    for line in page.text.splitlines()[1:]:
        if line.startswith("```"):
            close()
            if code is None:
                code, fence = [], line[3:].strip()
            else:
                if fence != "toml" and heading not in _LEFT_OUT:
                    blocks.append(Block("code", "\n".join(code)))
                code = None
            continue
        if code is not None:
            code.append(line)
            continue
        title, item = _HEADING.match(line), _LIST.match(line)
        if title is not None:
            close()
            heading = title["text"]
            if heading not in _LEFT_OUT:
                blocks.append(Block("heading", heading))
        elif heading in _LEFT_OUT:
            continue
        elif item is not None:
            close()
            blocks.append(Block("item", item["text"]))
        elif not line.strip():
            close()
        elif blocks and blocks[-1].kind == "item" and line.startswith("  ") and not paragraph:
            blocks[-1] = Block("item", f"{blocks[-1].text} {line.strip()}")
        else:
            paragraph.append(line.strip())
    close()
    return PageText(page.code, page.name, page.summary, page.url, tuple(blocks))
