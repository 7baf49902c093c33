"""Values of a JSON row that may be damaged: what is not what it should be is None."""

from __future__ import annotations

from typing import Any

#: Numbers from here on are no measurement: a damaged record.
_LARGEST = 2**63


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
