"""The part of the terminal report that tells what the run would cost on TPUs."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xladoctor.report import device, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from xladoctor.costs import DeviceTensor, TargetCost


def parts(costs: tuple[TargetCost, ...], width: int) -> Iterable[RenderableType]:
    """The targets side by side, then where the device time of the first goes."""
    if not costs:
        return
    versions = " and ".join(sorted({cost.compiler for cost in costs}))
    yield Text(f"\nOn a TPU, as its compiler estimates ({versions})", style="bold")
    together = max(1, (width - _LABELS) // _TARGET)
    for at in range(0, len(costs), together):
        yield Padding(_side_by_side(costs[at : at + together]), (at > 0, 0, 0, 2))
    first = costs[0]
    lines = device.lines(first)
    if lines:
        yield Text(f"\nDevice time of a step on {first.target}", style="bold")
        yield Padding(_lines(lines, width // 3), (0, 0, 0, 2))
        modules = device.modules(first)
        if modules:
            yield Text("\nBy module of the model", style="bold")
            yield Padding(_modules(modules, width // 2), (0, 0, 0, 2))
        yield Text("\nBy kind of operation", style="bold")
        yield Padding(_kinds(device.kinds(first)), (0, 0, 0, 2))
    for cost in costs:
        for sentence in device.failures(cost)[:5]:
            yield Padding(Text(f"{cost.target}: {sentence}", style="red"), (0, 0, 0, 2))
    graph, tensors = device.largest(first)
    if graph is not None and (tensors or graph.memory):
        where = words.place(graph.location)
        yield Text(f"\nMemory of the graph that ends at {where} on {first.target}", style="bold")
        if held := device.held(graph):
            yield Padding(Text(held), (0, 0, 0, 2))
        yield Padding(_tensors(tensors, width // 3), (0, 0, 0, 2))
    for note in device.notes(costs):
        yield Padding(Text(f"Note: {note}", style="dim"), (0, 0, 0, 2))


#: Columns that the labels of the targets' figures take, and those of one target.
_LABELS, _TARGET = 30, 23


def _side_by_side(costs: tuple[TargetCost, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("", style="dim", no_wrap=True)
    for cost in costs:
        table.add_column(cost.target, overflow="fold")
    for label, texts in device.facts(costs):
        table.add_row(label, *texts)
    return table


def _lines(lines: list[device.Line], columns: int) -> Table:
    table = _bars()
    for line in lines[: device.LINES]:
        where = words.tail(words.place(line.location), columns)
        table.add_row(*_bar(line), where, _does(line))
    _rest(table, lines[device.LINES :], "lines")
    return table


def _does(line: device.Line) -> str:
    return f"{line.operations} ({line.bound})" if line.bound else line.operations


def _modules(modules: list[device.Module], columns: int) -> Table:
    table = _bars()
    for one in modules[: device.MODULES]:
        inside = one.path.removesuffix(one.name).removesuffix(" > ")
        table.add_row(*_bar(one), one.name, words.tail(inside, columns))
    _rest(table, modules[device.MODULES :], "modules")
    return table


def _kinds(kinds: list[device.Kind]) -> Table:
    table = _bars()
    for kind in kinds:
        known = "" if not kind.silent else f", {kind.silent:.0f} without an estimate"
        table.add_row(*_bar(kind), kind.name, f"{kind.count:.0f} a step{known}")
    return table


def _bars() -> Table:
    """Time, share, bar, what it is of, and what more there is to say."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    return table


def _bar(one: device.Line | device.Module | device.Kind) -> tuple[str, str, Text]:
    bar = "█" * max(1, round(one.share * 12)) if one.share else ""
    seconds = device.time(one.seconds) if one.share else "-"
    return seconds, device.percent(one.share), Text(bar, style="green")


def _rest(table: Table, rest: Sequence[device.Line | device.Module], what: str) -> None:
    if rest:
        share = sum(one.share for one in rest)
        table.add_row(
            device.time(sum(one.seconds for one in rest)),
            device.percent(share), "", f"{len(rest)} more {what}", "",
        )  # fmt: skip


def _tensors(tensors: tuple[DeviceTensor, ...], columns: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
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
