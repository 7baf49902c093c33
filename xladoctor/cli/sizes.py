"""Bytes as people write them: 16GiB, 14.5G, 16000MiB, 16000000000."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from click import Context, Parameter

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse(text: str, what: str) -> int:
    """Bytes; "GB" are powers of 1000, "GiB" and "G" powers of 1024.

    Args:
        text: A number with a unit, or bytes.
        what: Where it stands, for the message.

    Raises:
        UsageError: It is no size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{what} takes bytes, as 14.5GiB or 16000000000, not {text!r}")
    base = 1000 if (found[3] or "").lower() == "b" else 1024
    power = _POWERS[found[2].upper()]
    return round(float(found[1]) * float(base**power))


class Size(click.ParamType[int]):
    """A number of bytes."""

    name = "size"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:  # noqa: ARG002
        """The bytes.

        Raises:
            UsageError: It is no size.
        """
        return parse(str(value), param.opts[0] if param is not None else "a size")
