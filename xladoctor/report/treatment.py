"""What each fix gained, as a table: what ``xladoctor treat`` shows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rich.table import Table

from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One run: the program as it is, or with one more kind of fix.

    Attributes:
        what: The fix ("3 x XLA101 host-sync-in-step"), or "as it is".
        verdict: "kept", or why not.
        compilations, after_warmup: Of one core.
        syncs, fallbacks: Per step of one core.
        step_seconds: Median step.
        losses: (printed losses that agree with the run before, all), if there were any.
    """

    what: str
    verdict: str
    compilations: int | None = None
    after_warmup: int | None = None
    syncs: float | None = None
    fallbacks: float | None = None
    step_seconds: float | None = None
    losses: tuple[int, int] | None = None


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table; a dash is what was not measured."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("compiled", "after warm-up", "syncs/step", "fallbacks/step", "step", "losses"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.what,
            words.dash(row.compilations),
            words.dash(row.after_warmup),
            _rate(row.syncs),
            _rate(row.fallbacks),
            words.seconds(row.step_seconds) if row.step_seconds is not None else "-",
            f"{row.losses[0]} of {row.losses[1]} as before" if row.losses else "-",
        )
    console.print(table)
    console.print()
    for row in rows:
        console.print(f"{row.what}: {row.verdict}", soft_wrap=True)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
