r"""Text of others made harmless to show: what cannot be seen, or moves what can, becomes an escape.

File names, messages and source lines may hold anything: terminal sequences, line ends that forge a
line of their own, marks that turn the direction of writing round (Trojan Source), lone surrogates
of names that are not UTF-8. Every format for people shows such a character as Python would write it
(``\x1b``, ``\u202e``, ``\n``); in JSON the same escapes are exact, so nothing is lost there.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import Any, TypeVar

from xladoctor import patterns

_Value = TypeVar("_Value")

#: Controls, surrogates, line and paragraph separators, and the formatting characters of Unicode
#: (categories Cc, Cs, Zl, Zp, Cf) but the joiners of scripts and emoji, U+200C and U+200D.
_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001-\U000e007f"
)
_IN_CODE = patterns.lazy(f"[{_UNSEEN}\\n]")
_IN_LINE = patterns.lazy(f"[{_UNSEEN}\\t\\n]")
_IN_JSON = patterns.lazy(f"[{_UNSEEN}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

#: What GitHub Actions reads as a command at the start of a line (blanks before it do not count),
#: or anywhere in it.
_COMMAND = patterns.lazy(r"^(?P<blanks>[^\S\n]*)::", re.MULTILINE)
_OLD_COMMAND = patterns.lazy(r"##(?=\[)")


def line(text: str) -> str:
    """A text as one line."""
    return text if text.isascii() and text.isprintable() else _IN_LINE.sub(_escape, text)


def code(text: str) -> str:
    """A line of source: as :func:`line`, and tabs stay."""
    return _IN_CODE.sub(_escape, text)


def of(value: _Value) -> _Value:
    """A result with all its texts as lines: dataclasses, tuples, lists and mappings of them."""
    made: Any = value
    if isinstance(value, str):
        made = value if isinstance(value, enum.Enum) else line(value)
    elif isinstance(value, (tuple, list)):
        if value and not isinstance(value[0], (int, float)):
            made = type(value)(of(item) for item in value)
    elif isinstance(value, dict):
        made = {of(key): of(item) for key, item in value.items()}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            after = of(before)
            if after is not before and after != before:
                changed[field.name] = after
        made = dataclasses.replace(value, **changed) if changed else value
    result: _Value = made
    return result


def guarded(text: str) -> str:
    """A whole output whose lines no log viewer takes for commands (``::error``, ``##[group]``)."""
    if "::" in text:
        text = _COMMAND.sub(r"\g<blanks>\\x3a:", text)
    return _OLD_COMMAND.sub(r"#\\x23", text) if "##[" in text else text


def in_json(text: str) -> str:
    """A JSON document whose unseen characters are written as JSON's own escapes: no value changes.

    Args:
        text: The document; its line ends and indentation stay.
    """
    return _IN_JSON.sub(_json_escape, text) if not text.isascii() or "\x7f" in text else text


class Guarded:
    """A stream for texts to be shown; see :func:`guarded`.

    Args:
        stream: Where whole lines go.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write one or several whole lines."""
        self._stream.write(guarded(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
