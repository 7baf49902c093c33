"""Printed values of a torch_xla metrics report, decoded exactly.

torch_xla prints a duration part by part (``01m08s608ms146.824us``). Each part is *rounded* when it
is printed, but its *floor* is subtracted before the next one (``MetricFnTime``, the same from 2018
to 2.9), so a part is one too large whenever what follows it is half of its unit or more:
``002ms687.511us`` is 1.687511 ms. The lower parts are exact, hence the decoding from the right.
"""

from __future__ import annotations

import re
from typing import Literal

Unit = Literal["s", "B", ""]

_NS = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
# torch_xla counts in 64 bits: longer numbers are not values, and would not fit a float.
_TIME = re.compile(
    r"(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?!s))?(?:(?P<s>\d{1,9})s)?"
    r"(?:(?P<ms>\d{1,9})ms)?(?P<us>\d{1,9})\.(?P<ns>\d{3})us"
)
_BYTES = re.compile(r"(?P<number>\d{1,20}(?:\.\d{1,9})?)(?P<unit>[KMGTP]?B)")
_NUMBER = re.compile(r"\d{1,25}\.\d{2}")
_BYTE_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40, "PB": 2**50}


def time_ns(text: str) -> int | None:
    """Nanoseconds of a printed duration; None if the text is not (or only the start of) one.

    Args:
        text: Such as ``04m19s324ms429.976us``; parts that are 0 at the front are left out.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    total = int(match["us"]) * 1000 + int(match["ns"])
    for part in ("ms", "s", "m", "h", "d"):
        if match[part] is None:
            continue
        count = int(match[part])
        if total * 2 >= _NS[part] and count > 0:
            count -= 1  # it had been rounded up
        total += count * _NS[part]
    return total


def parse_value(text: str) -> tuple[float, Unit] | None:
    """A printed value in base units and its unit: seconds, bytes or a plain number.

    Returns:
        None for what is not a whole value: cut, ``nanB``, other text.
    """
    text = text.strip()
    ns = time_ns(text)
    if ns is not None:
        return ns / 1e9, "s"
    match = _BYTES.fullmatch(text)
    if match is not None:
        return float(match["number"]) * _BYTE_UNITS[match["unit"]], "B"
    if _NUMBER.fullmatch(text) is not None:
        return float(text), ""
    return None
