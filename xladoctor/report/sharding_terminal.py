"""The part of the terminal report that tells what an SPMD program divides among its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xladoctor.report import sharding_words, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from xladoctor.shardings import Sharding

#: Rows of each table; all of them are in the JSON.
ROWS = 8


def parts(sharding: Sharding, width: int) -> Iterable[RenderableType]:
    """The largest tensors with their sharding, then the collectives of a step."""
    yield Text(f"\nSharding on {sharding_words.devices(sharding)}", style="bold")
    yield Padding(_tensors(sharding, width * 2 // 5), (0, 0, 0, 2))
    exchanged = sharding.collectives
    if exchanged is None:
        return
    if not exchanged:
        yield Padding(Text("A step exchanges nothing between the devices.", style="dim"), (0, 2))
        return
    yield Text("\nCollectives of a step", style="bold")
    yield Padding(_collectives(sharding, width // 3), (0, 0, 0, 2))


def _tensors(sharding: Sharding, columns: int) -> Table:
    table = _table("what", "tensor", "sharded", "each device", "of")
    rows = sharding_words.tensors(sharding)
    for row in rows[:ROWS]:
        style = "yellow" if row.whole else ""
        table.add_row(
            row.kind, words.tail(row.name, columns), Text(row.sharded, style=style), row.held,
            row.total,
        )  # fmt: skip
    if len(rows) > ROWS:
        table.add_row("", Text(f"and {len(rows) - ROWS} more", style="dim"), "", "", "")
    return table


def _collectives(sharding: Sharding, columns: int) -> Table:
    table = _table("kind", "count", "bytes", "over", "line", "for")
    rows = sharding_words.collectives(sharding)
    for row in rows[:ROWS]:
        table.add_row(
            row.kind, row.count, row.size, row.over, words.tail(row.line, columns), row.operation
        )
    if len(rows) > ROWS:
        table.add_row(Text(f"and {len(rows) - ROWS} more", style="dim"), "", "", "", "", "")
    return table


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in names:
        right = name in ("each device", "of", "count", "bytes")
        table.add_column(
            name, header_style="dim", justify="right" if right else "left",
            no_wrap=right, overflow="fold",
        )  # fmt: skip
    return table
