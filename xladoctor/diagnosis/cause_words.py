"""How the cause of a new graph is put into words, with the user's variables that explain it."""

from __future__ import annotations

import collections
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xladoctor.findings import Location
    from xladoctor.readings.hlo import Instruction
    from xladoctor.readings.tables import CompilationRow

#: How many differences a cause names.
SHOWN = 3

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_BOUNDS = re.compile(r"slice=\{(?P<bounds>[^}]*)\}")


def is_users(file: str) -> bool:
    """Whether a frame may be the user's: not torch's, the standard library's or our own."""
    if "-packages/" in file:
        return not any(
            part in file for part in ("-packages/torch/", "-packages/torch_xla/", "/xladoctor/")
        )
    return not any(
        part in file
        for part in ("/lib/python3", "<frozen", "/capture/agent/", "/capture/simulate/")
    )


def variable(
    old: Mapping[str, str] | None, new: Mapping[str, str] | None, before: str, after: str
) -> str | None:
    """The variable of the user's frames that had the one shape and now has the other."""
    return _nearest(
        name
        for name, shape in (new or {}).items()
        if shape == after and (old or {}).get(name) == before
    )


def kept(old: CompilationRow, new: CompilationRow, shapes: Iterable[str]) -> str:
    """``" (kept: f32[8,2])"``: what the user's frames hold now and did not; else the shapes."""
    wanted = list(shapes)
    names = [
        (name, shape)
        for name, shape in (new.named or {}).items()
        if shape in wanted and name not in (old.named or {"": ""})
    ]
    if old.named is not None and len(names) == len(wanted) == 1:
        return f"{names[0][0]}: {names[0][1]}"
    more = " ..." if len(wanted) > SHOWN else ""
    return ", ".join(wanted[:SHOWN]) + more


def changed_number(old: CompilationRow, new: CompilationRow, before: str, after: str) -> str:
    """``" (length: 3 -> 4)"``: the variable whose change made a number of the graph change.

    Args:
        old: The earlier graph.
        new: The new one.
        before: Text with the number as the earlier graph had it ("slice={[0:8], [0:3]}").
        after: The same of the new graph; as many numbers, or nothing is said.

    Returns:
        A variable that had and has the very values; else one that has grown by as much (``step``
        of ``x[: step + 1]``); "" if there is none, or several.
    """
    numbers = [float(text) for text in _NUMBER.findall(before)]
    others = [float(text) for text in _NUMBER.findall(after)]
    changes = {(a, b) for a, b in zip(numbers, others, strict=False) if a != b}
    if len(numbers) != len(others) or not changes:
        return ""
    differences = {b - a for a, b in changes}
    before_of, after_of = old.numbers or {}, new.numbers or {}
    moved = [name for name in after_of if before_of.get(name, after_of[name]) != after_of[name]]
    exact = [name for name in moved if (before_of[name], after_of[name]) in changes]
    as_much = [name for name in moved if after_of[name] - before_of[name] in differences]
    return _change(old, new, exact) or _change(old, new, as_much)


def became(old: CompilationRow, new: CompilationRow, value: str, *, was: bool = False) -> str:
    """``" (scale: 0.9 -> 1.0)"``: the variable that has become (or was) exactly a number."""
    found = _NUMBER.fullmatch(value)
    if found is None or old.numbers is None or new.numbers is None:
        return ""
    exact = float(value)
    side = old.numbers if was else new.numbers
    names = [
        name
        for name, number in side.items()
        if number == exact and new.numbers.get(name) != old.numbers.get(name)
    ]
    return _change(old, new, names)


def keeps_history(old: CompilationRow, new: CompilationRow) -> str | None:
    """The variable of which autograd remembers operations that were there at the earlier graph."""
    before, after = old.histories or {}, new.histories or {}
    return _nearest(
        name
        for name, (oldest, newest) in after.items()
        if name in before and oldest <= before[name][1] < newest
    )


def _change(old: CompilationRow, new: CompilationRow, names: list[str]) -> str:
    name = _nearest(names)
    # Two variables of one frame may both be it: better silent than wrong.
    if name is None or sum(one.count(".") == name.count(".") for one in names) > 1:
        return ""
    before, after = (old.numbers or {}).get(name), (new.numbers or {})[name]
    return f" ({name}: {'not there' if before is None else before} -> {after})"


def _nearest(names: Iterable[str]) -> str | None:
    """Of the innermost frame, the shortest; None for no name."""
    return min(names, key=lambda name: (name.count("."), len(name)), default=None)


def operation(instruction: Instruction, users: Iterable[Instruction] = ()) -> str:
    """The name that torch gives to what was traced, or of what takes it; "" if neither is known."""
    known = (one.operation for one in (instruction, *users))
    return next((name for name in known if name.startswith("aten::")), "")


def change(before: Instruction, after: Instruction) -> str:
    """What differs between two instructions that correspond: ``[0:8, 0:3] -> [0:8, 0:4]``."""
    bounds = [_BOUNDS.search(one.detail) for one in (before, after)]
    if after.opcode == "slice" and None not in bounds:
        first, second = (one["bounds"].replace("], [", ", ") for one in bounds if one)
        return f"{first} -> {second}"
    parts = [len(one.operands) for one in (before, after)]
    if after.opcode == "concatenate" and parts[0] != parts[1]:
        return f"{parts[0]} parts -> {parts[1]} parts"
    if before.shape != after.shape:
        return f"{before.shape} -> {after.shape}"
    return f"{before.detail} -> {after.detail}"


def operations(
    added: list[Instruction], gone: list[Instruction], place: Location | None, old: Location | None
) -> str:
    """Operations that are new, and those that are gone, each with the first line."""
    parts = []
    for words, some, at in (("more", added, place), ("fewer", gone, old)):
        if some:
            where = f", first at {at.filename}:{at.row}" if at else ""
            count = f"{len(some)} {words} operation{'s' if len(some) > 1 else ''}"
            parts.append(f"{count} ({operation_names(some)}{where})")
    return "; ".join(parts)


def operation_names(instructions: Iterable[Instruction]) -> str:
    """The most frequent operations, three at most."""
    counts = collections.Counter(one.operation or one.opcode for one in instructions)
    shown = [name for name, _ in counts.most_common(SHOWN)]
    return ", ".join(shown) + (" ..." if len(counts) > SHOWN else "")


def other_shapes(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
    """Shapes that only the one has; the new one's first."""
    one, other = collections.Counter(old), collections.Counter(new)
    return list((other - one).elements()) or list((one - other).elements())
