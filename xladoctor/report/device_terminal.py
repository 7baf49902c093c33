"""The part of the terminal report that tells what the run would cost on TPUs."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xladoctor import amounts
from xladoctor.report import device, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from xladoctor.costs import DeviceTensor, TargetCost


def parts(costs: tuple[TargetCost, ...], width: int) -> Iterable[RenderableType]:
    """The targets side by side, then where the device time of the first goes."""
    if not costs:
        return
    versions = " and ".join(sorted({cost.compiler for cost in costs}))
    yield Text(f"\nOn a TPU, as its compiler estimates ({versions})", style="bold")
    yield Padding(_side_by_side(costs), (0, 0, 0, 2))
    first = costs[0]
    lines = device.lines(first)
    if lines:
        yield Text(f"\nDevice time of a step on {first.target}", style="bold")
        yield Padding(_lines(lines, width // 3), (0, 0, 0, 2))
        kinds = ", ".join(f"{kind.name} {kind.share:.0%}" for kind in device.kinds(first)[:5])
        yield Padding(Text(kinds, style="dim"), (0, 0, 0, 2))
    for cost in costs:
        for sentence in device.failures(cost)[:5]:
            yield Padding(Text(f"{cost.target}: {sentence}", style="red"), (0, 0, 0, 2))
    graph, tensors = device.largest(first)
    if graph is not None and tensors:
        where = words.place(graph.location)
        yield Text(f"\nLargest tensors of the graph that ends at {where}", style="bold")
        yield Padding(_tensors(tensors, width // 3), (0, 0, 0, 2))
    for note in device.notes(costs):
        yield Padding(Text(f"Note: {note}", style="dim"), (0, 0, 0, 2))


def _side_by_side(costs: tuple[TargetCost, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("", style="dim", no_wrap=True)
    for cost in costs:
        table.add_column(cost.target, overflow="fold")
    for label, texts in device.facts(costs):
        table.add_row(label, *texts)
    return table


def _lines(lines: list[device.Line], columns: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for line in lines[: device.LINES]:
        bar = "█" * max(1, round(line.share * 12))
        table.add_row(
            device.time(line.seconds),
            amounts.percent(line.share),
            Text(bar, style="green"),
            words.tail(words.place(line.location), columns),
            line.operations,
        )
    if len(lines) > device.LINES:
        rest = lines[device.LINES :]
        table.add_row(
            device.time(sum(line.seconds for line in rest)),
            f"{sum(line.share for line in rest):.0%}", "", f"{len(rest)} more lines", "",
        )  # fmt: skip
    return table


def _tensors(tensors: tuple[DeviceTensor, ...], columns: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for one, count in collections.Counter(
        dataclasses.replace(one, first=None, last=None) for one in tensors
    ).items():
        padded = one.unpadded is not None and one.size > 1.05 * one.unpadded
        table.add_row(
            (f"{count} x " if count > 1 else "") + device.size(one.size),
            device.shape(one.shape),
            one.kind + (f", {device.size(one.unpadded)} without padding" if padded else ""),
            words.tail(words.place(one.location), columns) if one.location is not None else "",
        )
    return table
