"""The number of simulated cores, as several commands take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from xladoctor.capture.simulate import MAX_CORES
from xladoctor.errors import UsageError

if TYPE_CHECKING:
    from click import Context, Parameter


class Cores(click.ParamType[int]):
    """A whole number from 1 to the most cores that can be simulated."""

    name = "cores"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:  # noqa: ARG002
        """The number.

        Raises:
            UsageError: It is none, or out of range.
        """
        try:
            number = int(value)
        except ValueError:
            number = 0
        if not 1 <= number <= MAX_CORES:
            raise UsageError(
                f"--simulate-cores takes a whole number from 1 to {MAX_CORES}, not '{value}'"
            )
        return number
