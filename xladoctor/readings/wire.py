"""Protocol buffers on the wire, as far as graphs need them: fields, and messages made of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How a field's value is written: as a number of variable length, or as bytes with their length.
VARINT, LENGTH = 0, 2


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field of a message: bytes, or the value of a varint.

    Fields of fixed length (which graphs have in literals and costs only) are passed over.

    Raises:
        ValueError: This is no message, or one that was cut.
        IndexError: It was cut inside a number.
    """
    for number, kind, value, _ in parts(data):
        if kind in (VARINT, LENGTH):
            yield number, value


def parts(data: bytes) -> Iterator[tuple[int, int, bytes | int, bytes]]:
    """Number, kind, value (0 for fixed lengths) and the whole bytes of each field of a message."""
    at = 0
    while at < len(data):
        start = at
        key, at = varint(data, at)
        kind = key & 7
        value: bytes | int = 0
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind == LENGTH:
            length, at = varint(data, at)
            value = data[at : at + length]
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > len(data):
            raise ValueError("a message was cut")
        yield key >> 3, kind, value, data[start:at]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def messages(data: bytes, number: int) -> list[bytes]:
    """The values of a field that holds messages or text."""
    return [value for field, value in fields(data) if field == number and isinstance(value, bytes)]


def numbers(data: bytes) -> dict[int, int]:
    """The fields that hold numbers."""
    return {field: value for field, value in fields(data) if isinstance(value, int)}


def packed(value: bytes) -> list[int]:
    """The numbers of a packed repeated field."""
    found = []
    at = 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(one)
    return found


def number(value: int) -> bytes:
    """A number of variable length, written."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(key: int, value: bytes | int) -> bytes:
    """A field, written."""
    if isinstance(value, int):
        return number(key << 3 | VARINT) + number(value)
    return number(key << 3 | LENGTH) + number(len(value)) + value
