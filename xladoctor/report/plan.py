"""A plan as a table for the terminal, and as JSON (see the contract of ``xladoctor plan``)."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xladoctor import amounts, visible
from xladoctor.planning.advice import advice, shown, why_other_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.planning.row import Row

FORMATS = ("full", "json")

#: Said below every table: the figures are the compiler's, and of the device alone.
WHAT_IS_SHOWN = (
    "Times are the TPU compiler's estimate of the device alone: no input pipeline, no Python, and "
    "nothing for what it does not estimate (collectives, most gathers and scatters). Nothing was "
    "executed."
)


def render(
    rows: Sequence[Row], output_format: str, *, width: int = 100, color: bool = False
) -> str:
    """A plan in one of :data:`FORMATS`."""
    if output_format == "json":
        return visible.in_json(_json(rows))
    return visible.guarded(_full(visible.of(list(rows)), width, color=color))


def _json(rows: Sequence[Row]) -> str:
    return (
        json.dumps({"schema_version": 1, "rows": [_object(row) for row in rows]}, indent=1) + "\n"
    )


def _object(row: Row) -> dict[str, Any]:
    return {
        "command": list(row.command),
        "values": row.values,
        "target": row.target,
        "fits": row.fits,
        "memory_bytes": row.memory_bytes,
        "memory_limit_bytes": row.memory_limit_bytes,
        "device_seconds": row.device_seconds,
        "samples": row.samples,
        "samples_per_second": row.samples_per_second,
        "matrix_unit_share": row.matrix_unit_share,
        "graphs": row.graphs,
        "notes": list(row.notes),
        "error": row.error,
    }


def _full(rows: Sequence[Row], width: int, *, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_jupyter=False,
        force_terminal=color, color_system="standard" if color else None,
        highlight=False,
    )  # fmt: skip
    console.print(_table(rows))
    for row in rows:
        if row.error is not None:
            console.print(f"{row.target}, {shown(row.values)}: {row.error}", style="red")
    for sentence in advice(rows):
        console.print(sentence)
    for note in dict.fromkeys(
        [*why_other_memory(rows), *(note for row in rows for note in row.notes)]
    ):
        console.print(f"Note: {note}.")
    console.print(WHAT_IS_SHOWN, style="dim")
    return out.getvalue()


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    for name in names:
        table.add_column(name, justify="right", vertical="bottom", overflow="fold")
    table.add_column("target", no_wrap=True)
    for title in ("memory", "a core\nhas", "fits", "device\ntime", "samples/s\na core"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("matrix\nunits", justify="right", no_wrap=True)
    before = None
    for row in rows:
        chosen = tuple(row.values.get(name, "") for name in names)
        table.add_row(
            *(chosen if chosen != before else [""] * len(names)), row.target, *_cells(row)
        )
        before = chosen
    return table


def _cells(row: Row) -> list[Text | str]:
    fits = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text("?", "yellow")}
    share = row.matrix_unit_share
    rate = row.samples_per_second
    return [
        "-" if row.memory_bytes is None else amounts.size(row.memory_bytes),
        "-" if row.memory_limit_bytes is None else amounts.size(row.memory_limit_bytes),
        fits[row.fits],
        "-" if row.device_seconds is None else amounts.device_time(row.device_seconds),
        "-" if rate is None else f"{rate:,.0f}",
        "-" if share is None else amounts.percent(share),
    ]
