"""Lines of any text: of bounded length, without colours, markup and the dressing of logs."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Characters of a line that are looked at together; a report in one JSON string is much shorter.
LONGEST = 1 << 20

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
_MARKUP = re.compile(
    r"</?(?:p|pre|code|br|div|span|blockquote|b|i|li|td|tr|table|samp|tt)\b[^>]*>", re.IGNORECASE
)
# Blanks that are none to people: of web pages (no-break), and of chats (of no width).
_BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u200b": None, "\ufeff": None})
_LAST_BREAK = re.compile(r"(?s).*(?:\s|\\n)")


def bounded(text: TextIO) -> Iterator[str]:
    """The lines of a text; a line without end comes in parts, cut only at blanks.

    What has no blank for a million characters is no text and is passed over, so that a file of any
    size and kind is read in little memory.
    """
    rest = ""
    while part := text.readline(LONGEST):
        if part[-1] == "\n" or len(part) < LONGEST:
            yield rest + part if rest else part
            rest = ""
            continue
        part = rest + part
        end = _LAST_BREAK.match(part)
        yield "" if end is None else part[: end.end()]
        rest = "" if end is None else part[end.end() :]
    if rest:
        yield rest


def clean(line: str) -> str:
    """A line without terminal colours, HTML markup and entities, and the dressing of logs."""
    if not line.isascii():
        line = line.translate(_BLANKS)
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "<" in line:
        line = _MARKUP.sub(" ", line)
    if "&" in line:
        line = html.unescape(html.unescape(line)) if "&amp;" in line else html.unescape(line)
        if "<" in line:
            line = _MARKUP.sub(" ", line)
        line = line.translate(_BLANKS)
    if "**" in line:
        line = line.replace("**", "")  # bold, in Markdown
    return line.rstrip().rstrip("\"',`") if line.rstrip()[-1:] in "\"',`" else line
