"""Changing the code cells of a notebook file and nothing else in it, byte for byte.

A notebook read and written again as JSON would come back with other spacing, escapes and numbers.
So the places of the cells' sources are found in the file's text, and only those are rewritten.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def replace_sources(data: bytes, changes: Mapping[int, Callable[[str], str]]) -> bytes | None:
    """The file's bytes with the sources of some cells changed.

    Args:
        data: The notebook file, known to be JSON with cells: in form 4, or in the old form 3.
        changes: Index in ``cells`` to what to make of the cell's source.

    Returns:
        None if the file has no such cells.
    """
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = data[len(bom) :].decode("utf-8")
    start = _cells(text, _skip(text, 0))
    if start is None:
        return None
    pieces: list[str] = []
    done = 0
    for index, place in enumerate(_items(text, start)):
        if index not in changes:
            continue
        begin = _value(text, place, "source")
        if begin is None:
            begin = _value(text, place, "input")  # form 3
        if begin is None:
            return None
        old, end = _DECODER.raw_decode(text, begin)
        pieces += [text[done:begin], _rewritten(text[begin:end], old, changes[index])]
        done = end
    return bom + "".join([*pieces, text[done:]]).encode("utf-8")


def _cells(text: str, document: int) -> int | None:
    """Where the list of cells begins; form 3 has it in the first of its worksheets."""
    start = _value(text, document, "cells")
    sheets = None if start is not None else _value(text, document, "worksheets")
    first = None if sheets is None else next(_items(text, sheets), None)
    return start if first is None else _value(text, first, "cells")


def _rewritten(raw: str, old: str | list[str], change: Callable[[str], str]) -> str:
    """A source as JSON in the form in which the old one was written: a text, or a list of lines."""
    if isinstance(old, str):
        return _quote(change(old), raw)
    lines = change("".join(old)).splitlines(keepends=True)
    inside = raw[1:-1]
    lead = _SPACE.match(inside)
    trail = inside[len(inside.rstrip()) :] if inside.strip() else ""
    assert lead is not None
    between = "," + (lead[0] or " ")
    # Lines that stay keep their spelling, escapes included.
    spelled = {_DECODER.raw_decode(raw, at)[0]: _raw(raw, at) for at in _items(raw, 0)}
    return f"[{lead[0]}{between.join(spelled.get(x) or _quote(x, raw) for x in lines)}{trail}]"


def _quote(line: str, like: str) -> str:
    """A JSON string that escapes what the old text escaped."""
    return json.dumps(line, ensure_ascii=like.isascii() and "\\u" in like)


def _raw(text: str, place: int) -> str:
    return text[place : _DECODER.raw_decode(text, place)[1]]


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


def _value(text: str, place: int, name: str) -> int | None:
    """Where the value of a key of the object at ``place`` begins; the last one counts."""
    found = None
    for key, at in _members(text, place):
        if key == name:
            found = at
    return found


def _members(text: str, place: int) -> Iterator[tuple[Any, int]]:
    """Keys of the object at ``place``, and where their values begin."""
    place = _skip(text, place + 1)
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _skip(text, _skip(text, place) + 1)  # behind the colon
        yield key, place
        place = _next(text, place)


def _items(text: str, place: int) -> Iterator[int]:
    """Where the elements of the array at ``place`` begin."""
    place = _skip(text, place + 1)
    while text[place] != "]":
        yield place
        place = _next(text, place)


def _next(text: str, place: int) -> int:
    """The place after the value at ``place``, and after the comma that follows it."""
    place = _skip(text, _DECODER.raw_decode(text, place)[1])
    return _skip(text, place + 1) if text[place] == "," else place
