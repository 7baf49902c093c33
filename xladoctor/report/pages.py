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
    reader = _Reader()
    for line in page.body.splitlines():
        reader.feed(line)
    reader.end_paragraph()
    return PageText(page.code, page.name, page.summary, page.url, tuple(reader.blocks))


class _Reader:
    """Gathers lines into blocks."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._paragraph: list[str] = []
        self._kind = "text"
        self._code: list[str] | None = None
        self._heading = ""

    def feed(self, line: str) -> None:
        """Take one line."""
        if line.startswith("```"):
            self._on_fence()
        elif self._code is not None:
            self._code.append(line)
        else:
            self._on_text(line)

    def end_paragraph(self) -> None:
        """Close what is open."""
        if self._paragraph:
            self._add(self._kind, " ".join(self._paragraph))
        self._paragraph, self._kind = [], "text"

    def _add(self, kind: str, text: str) -> None:
        if self._heading not in _LEFT_OUT:
            self.blocks.append(Block(kind, text))

    def _on_fence(self) -> None:
        self.end_paragraph()
        if self._code is None:
            self._code = []
            return
        self._add("code", "\n".join(self._code))
        self._code = None

    def _on_text(self, line: str) -> None:
        title, item = _HEADING.match(line), _LIST.match(line)
        if title is not None or item is not None or not line.strip():
            self.end_paragraph()
        if title is not None:
            self._heading = title["text"]
            self._add("heading", title["text"])
        elif item is not None:
            self._paragraph, self._kind = [item["text"]], "item"
        elif line.strip():
            self._paragraph.append(line.strip())
