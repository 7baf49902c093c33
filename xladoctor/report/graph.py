"""One recorded graph, a list of them, or what differs between two, as text or JSON."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from xladoctor import visible
from xladoctor.report import words
from xladoctor.results import location_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.findings import Location
    from xladoctor.graphs import Change, Diff, View
    from xladoctor.results import Compilation

#: What stands before a change.
SIGNS = {"removed": "-", "added": "+", "changed": "~"}
#: What stands instead of the line of an operation that has none.
NO_LINE = "line not recorded (the backward pass is traced without lines)"
#: Longest list of shapes in text; JSON has all.
_LONGEST = 120
_METADATA = re.compile(r",? metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}")
_NUMBER = re.compile(r"(%[A-Za-z_\-]+[\w\-]*?)(?:\.\d+)+\b")


def listed(compilations: Iterable[Compilation], kept: Iterable[int]) -> str:
    """All graphs of a run, one line each."""
    known = set(kept)
    lines = []
    for number, one in enumerate(compilations, 1):
        gone = "" if number in known else "  (not kept)"
        where = f"{words.place(one.location)} ({words.ended_by(one)})"
        lines.append(f"{number:>5}  {words.seconds(one.seconds):>7}  {where}{gone}")
        lines.append(f"{'':>16}{words.cause(one, short=True)}")
    return _shown(lines)


def text(view: View) -> str:
    """A graph as text: its inputs and its operations under their lines."""
    lines = [*_head(view), "", f"inputs ({len(view.inputs)})"]
    for numbers, shape in _folded(view.inputs):
        lines.append(f"  {numbers:<10} {shape}")
    for place, group in itertools.groupby(view.operations, key=lambda one: one.location):
        lines += ["", heading(place)]
        rows = [
            f"{one.name}({_cut(', '.join(one.inputs))}) -> {_cut(', '.join(one.outputs))}"
            for one in group
        ]
        for row, times in _repeated(rows):
            lines.append(f"  {row}{f'   x{times}' if times > 1 else ''}")
    lines += ["", f"results ({len(view.outputs)})"]
    for numbers, shape in _folded(view.outputs):
        lines.append(f"  {numbers:<10} {shape}")
    return _shown(lines)


def diff_text(diff: Diff, old: View, new: View) -> str:
    """What differs, as text."""
    lines = [*_head(old, "- "), *_head(new, "+ "), ""]
    if diff.empty:
        return _shown([*lines, "no operation, shape or constant differs"])
    if diff.inputs:
        lines.append("inputs")
        lines += [f"  {change_text(one)}" for one in diff.inputs]
        lines.append("")
    for line in diff.lines:
        lines.append(heading(line.location))
        lines += [f"  {change_text(one)}" for one in line.changes]
        lines.append("")
    begins = any(change.origin for line in diff.lines for change in line.changes)
    if begins or diff.inputs:
        lines.append("*: the difference begins here; what is not marked only follows from it")
    lines.append(f"operations that both graphs have: {diff.same:.0%}")
    return _shown(lines)


def change_text(change: Change) -> str:
    """``~ aten::mm  f32[16,8] -> f32[10,8]  x3  *``."""
    sides = (_cut(value) for value in (change.before, change.after) if value is not None)
    values = " -> ".join(sides)
    times = f"   x{change.count}" if change.count > 1 else ""
    return f"{SIGNS[change.kind]} {change.name}  {values}{times}{'   *' if change.origin else ''}"


def as_json(view: View, diff: Diff | None = None) -> str:
    """A graph, or a diff to it, as one JSON object."""
    made: dict[str, Any] = {
        "number": view.number,
        "graph": view.compilation.graph,
        "location": location_to_json(view.compilation.location),
        "instructions": view.instructions,
        "inputs": list(view.inputs),
        "outputs": list(view.outputs),
    }
    if diff is None:
        made["operations"] = [
            {
                "name": one.name,
                "inputs": list(one.inputs),
                "outputs": list(one.outputs),
                "location": location_to_json(one.location),
                "instructions": one.instructions,
            }
            for one in view.operations
        ]
    else:
        made["diff"] = {
            "other": diff.old,
            "same": diff.same,
            "inputs": [_change(one) for one in diff.inputs],
            "lines": [
                {
                    "location": location_to_json(line.location),
                    "changes": [_change(one) for one in line.changes],
                }
                for line in diff.lines
            ],
        }
    return visible.in_json(json.dumps(made, indent=2, ensure_ascii=False)) + "\n"


def hlo_diff(old: str, new: str, numbers: tuple[int, int]) -> str:
    """Two HLO texts as a unified diff, without what differs in any two graphs: names, lines."""
    before, after = (_plain(one) for one in (old, new))
    first, second = (f"graph {number}" for number in numbers)
    lines = difflib.unified_diff(before, after, first, second, lineterm="", n=2)
    return "".join(f"{line}\n" for line in lines)


def _plain(hlo: str) -> list[str]:
    return [_NUMBER.sub(r"\1", _METADATA.sub("", line)) for line in hlo.splitlines()]


def _cut(shapes: str) -> str:
    """The beginning of a long list: an all-reduce takes all gradients at once."""
    return shapes if len(shapes) <= _LONGEST else f"{shapes[:_LONGEST]} ..."


def _change(one: Change) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "before": one.before,
        "after": one.after,
        "count": one.count,
        "origin": one.origin,
    }


def _head(view: View, sign: str = "") -> Iterator[str]:
    one = view.compilation
    yield (
        f"{sign}graph {view.number}: ended at {words.place(one.location)} "
        f"({words.ended_by(one)}), {view.instructions} instructions"
    )
    if not sign or sign.startswith("+"):
        yield f"{' ' * len(sign)}why it was new: {words.cause(one)}"
    if view.lines_of is not None:
        yield f"{' ' * len(sign)}lines as in graph {view.lines_of}: here they were no longer noted"
    elif not view.noted:
        yield f"{' ' * len(sign)}lines were no longer noted when it was traced"


def heading(place: Location | None) -> str:
    """A line as a heading: ``train.py:40 in train``."""
    if place is None:
        return NO_LINE
    return f"{place.at} in {place.function}" if place.function else place.at


def _folded(shapes: Iterable[str]) -> Iterator[tuple[str, str]]:
    at = 0
    for shape, group in itertools.groupby(shapes):
        count = len(list(group))
        yield (f"{at}" if count == 1 else f"{at}-{at + count - 1}"), shape
        at += count


def _repeated(rows: Iterable[str]) -> Iterator[tuple[str, int]]:
    for row, group in itertools.groupby(rows):
        yield row, len(list(group))


def _shown(lines: Iterable[str]) -> str:
    return visible.guarded("\n".join(visible.line(line) for line in lines)) + "\n"
