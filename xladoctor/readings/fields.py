"""Values of a JSON row that may be damaged: what is not what it should be is None."""

from __future__ import annotations

import re
from typing import Any

#: Numbers from here on are no measurement: a damaged record. (Below it floats are exact.)
_LARGEST = 2**53
#: Unix seconds of the year 10000, which no calendar goes beyond.
_LAST_MOMENT = 253_402_300_800
#: More cores than the largest pod has: numbers beyond are none of a core.
_LAST_CORE = 2**16
#: How much longer (seconds, and a share) the parts of a stretch may be than it: they were rounded.
_SLACK, _SLACK_SHARE = 1.0, 0.05
_GRAPH = re.compile(r"graphs/[0-9]{1,9}")


def kinds(more: list[Any]) -> dict[str, int] | None:
    """How many reads were of which kind; None in a run that was recorded without."""
    if not more or not isinstance(more[0], dict):
        return None
    return {str(kind): round(required(count)) for kind, count in more[0].items()}


def text(value: Any) -> str | None:
    """A text; None for anything else."""
    return value if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """A finite number, as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _LARGEST else None


def required(value: Any) -> float:
    """A finite number.

    Raises:
        ValueError: It is none.
    """
    found = number(value)
    if found is None:
        raise ValueError(f"{value!r} is not a number")
    return found


def moment(value: Any) -> float | None:
    """A time in unix seconds; None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found < _LAST_MOMENT else None


def core(value: Any) -> int:
    """The number of a core; a process that says none is the one core of itself.

    Raises:
        ValueError: No pod has so many.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    if not 0 <= value < _LAST_CORE:
        raise ValueError(f"{value} is no number of a core")
    return value


def parts(values: Any, total: float) -> dict[str, float]:
    """The parts of a stretch of time by name, in seconds.

    Raises:
        ValueError: One is negative, or they are more than the whole.
    """
    found = {str(k): required(v) for k, v in (values or {}).items() if v is not None}
    most = total * (1 + _SLACK_SHARE) + _SLACK
    if any(value < -_SLACK for value in found.values()) or sum(found.values()) > most:
        raise ValueError("the parts of this stretch of time are more than the whole")
    return found


def graph_name(value: Any) -> str | None:
    """The name under which the recorder keeps a graph; None for anything else: it is a path."""
    return value if isinstance(value, str) and _GRAPH.fullmatch(value) else None


def integer(value: Any) -> int | None:
    """A whole number of sensible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < _LARGEST else None


def integers(values: Any) -> tuple[int, ...]:
    """The whole numbers of a list; none for anything else."""
    found = values if isinstance(values, list) else ()
    return tuple(value for value in found if integer(value) is not None)


def by_name(values: Any) -> dict[str, float] | None:
    """Numbers by name; None if there is no such mapping."""
    if not isinstance(values, dict):
        return None
    return {name: value for name, value in values.items() if number(value) is not None}


def ranges(values: Any) -> dict[str, tuple[int, int]] | None:
    """Two whole numbers by name; None if there is no such mapping."""
    if not isinstance(values, dict):
        return None
    found = {name: integers(value) for name, value in values.items()}
    return {name: (pair[0], pair[1]) for name, pair in found.items() if len(pair) == 2}
