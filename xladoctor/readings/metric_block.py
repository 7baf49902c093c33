"""One block of a metrics report: its printed fields to a :class:`~xladoctor.results.Metric`."""

from __future__ import annotations

import dataclasses
import math
import re

from xladoctor.readings.values import Unit, parse_value
from xladoctor.results import Metric

# A 64-bit counter has no more digits. What follows a number may be the rest of a record that holds
# the line ('80", "stream": ...'); in "1.5" or "1,024" it is another part of the number.
_INTEGER = re.compile(r"\d{1,19}(?=[\s\"'`;|*<>)}\]\\]|,(?!\d)|$)")
_VALUE = re.compile(r"[^\s\"'`,;|*<>(){}\[\]\\]*")
_HEAD = re.compile(r"\d{1,3}(?:\.\d{1,9})?")

#: Metrics whose unit is fixed: a value of theirs without it has been cut ("1.03" of "1.03KB").
BYTE_METRICS = frozenset({"InboundData", "OutboundData", "XrtExecutorEvict"})


@dataclasses.dataclass(slots=True)
class Block:
    """A metric or counter while it is being read.

    Attributes:
        twin: The same header stood before it with nothing in between: perhaps two processes print.
        mixed: They do: a field came twice with different values, and whose is whose is not known.
    """

    kind: str
    name: str
    fields: dict[str, str] = dataclasses.field(default_factory=dict)
    twin: bool = False
    mixed: bool = False


def count_of(text: str) -> int | None:
    """A printed count; None if it is cut, or is no count that fits 64 bits."""
    if text.isdecimal() and len(text) <= 19 and text.isascii():
        return int(text)
    match = _INTEGER.match(text)
    return int(match[0]) if match else None


def metric_of(block: Block) -> Metric | None:
    """The metric of a block; None if nothing but its name could be read."""
    fields = block.fields
    samples = count_of(fields.get("TotalSamples", ""))
    accumulator = parse_value(_token(fields.get("Accumulator", "")))
    unit: Unit | None = accumulator[1] if accumulator else None
    percentiles: dict[str, float] = {}
    for part in fields.get("Percentiles", "").split(";"):
        head, equals, text = part.strip().partition("%=")
        value = parse_value(_token(text)) if equals and _HEAD.fullmatch(head) else None
        if value is None or (unit is not None and value[1] != unit):
            continue  # cut, perhaps in the middle of its unit
        unit = value[1]
        percentiles[head] = value[0]
    if samples is None and unit is None:
        return None
    unit = unit or ""
    if block.name in BYTE_METRICS and unit == "":
        accumulator, unit, percentiles = None, "B", {}
    return Metric(
        total_samples=samples,
        accumulator=accumulator[0] if accumulator else None,
        unit=unit,
        percentiles=percentiles,
        value_rate=_value_rate(fields.get("ValueRate", ""), unit),
        rate=_rate(fields.get("Rate", "")),
        mean=_mean(fields.get("Mean", ""), unit),
    )


def _value_rate(text: str, unit: Unit) -> float | None:
    number, slash, _ = text.partition("/")
    value = parse_value(number) if slash else None
    return value[0] if value is not None and value[1] == unit else None


def _rate(text: str) -> float | None:
    number, slash, _ = text.partition("/")
    if not slash:
        return None
    try:
        value = float(number)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _mean(text: str, unit: Unit) -> float | None:
    value = parse_value(_token(text))
    return value[0] if value is not None and value[1] == unit else None


def _token(text: str) -> str:
    """A value has no blanks: what follows is a progress bar or the record that holds the line."""
    found = _VALUE.match(text)
    return found[0] if found else ""
