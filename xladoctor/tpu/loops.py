"""How often a loop of an optimized graph runs, found by counting as the loop does.

libtpu 0.0.21 leaves ``known_trip_count`` out of what it prints. What a loop counts are single whole
numbers of its state, and what it does with them is little: so they are followed from turn to turn
until the condition does not hold. The halves in which a TPU keeps a 64-bit number (``scan`` counts
in int64) need no word of their own then.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

from xladoctor.tpu import shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xladoctor.tpu.optimized import Line

#: Turns after which a loop's number is given up: to count takes time, too.
MOST_TURNS = 20_000

_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_BODY = re.compile(r"body=%?([\w.\-]+)")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_INDEX = re.compile(r"index=(\d+)")
_DIRECTION = re.compile(r"direction=(\w+)")
_WHOLE = re.compile(r"(s|u)(8|16|32|64)")

#: What gives a number on; a change of type changes only where it wraps.
_SAME = frozenset({"copy", "bitcast", "convert", "reshape", "bitcast-convert", "broadcast"})

_SUMS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "minimum": min, "maximum": max,
}  # fmt: skip
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip


def iterations(
    loop: Line, around: Sequence[Line], computations: Mapping[str, Sequence[Line]]
) -> int | None:
    """The turns of a ``while``; None if they are not known, or are too many to be counted.

    Args:
        loop: The instruction.
        around: The computation that it is in.
        computations: All of the graph.
    """
    known = _KNOWN.search(loop.rest)
    if known is not None:
        return int(known[1])
    asked, turn = (
        _Computation(computations.get(found[1], ()) if found else (), computations)
        for found in (_CONDITION.search(loop.rest), _BODY.search(loop.rest))
    )
    state = _Computation(around, computations).begun(loop)
    for turns in range(MOST_TURNS):
        more = asked.result(state)
        if more is None:
            return None
        if not more:
            return turns
        after = turn.elements(state)
        if after == state or len(after) != len(state):
            return None
        state = after
    return None


class _Computation:
    """A computation, asked for its whole numbers; None is what is none, or not known."""

    def __init__(self, lines: Sequence[Line], computations: Mapping[str, Sequence[Line]]) -> None:
        self._lines = {line.name: line for line in lines}
        self._root = next((line for line in lines if line.root), None)
        self._computations = computations
        self._fused: dict[str, _Computation] = {}
        self._known: dict[str, int | None] = {}
        self._given: Sequence[int | None] = ()
        self._state: Sequence[int | None] = ()

    def begun(self, loop: Line) -> list[int | None]:
        """The state with which a loop of this computation begins."""
        made = self._lines.get(loop.operands[0]) if loop.operands else None
        if made is None or made.opcode != "tuple":
            return []
        return [self._number(name) for name in made.operands]

    def result(self, state: Sequence[int | None]) -> int | None:
        """What it gives for a state, if that is one number."""
        self._begin(state=state)
        return None if self._root is None else self._number(self._root.name)

    def elements(self, state: Sequence[int | None]) -> list[int | None]:
        """What it gives for a state, if that is a tuple."""
        self._begin(state=state)
        if self._root is None or self._root.opcode != "tuple":
            return []
        return [self._number(name) for name in self._root.operands]

    def _begin(self, state: Sequence[int | None] = (), given: Sequence[int | None] = ()) -> None:
        self._known, self._state, self._given = {}, state, given

    def _number(self, name: str) -> int | None:
        if name not in self._known:
            line = self._lines.get(name)
            found = None if line is None else self._found(line)
            self._known[name] = None if line is None or found is None else _wrapped(found, line)
        return self._known[name]

    def _found(self, line: Line) -> int | None:
        array = shapes.arrays(line.shape)
        if len(array) != 1 or array[0].sizes:
            return None
        if line.opcode == "constant":
            return line.number
        if line.opcode == "parameter":
            at = line.number or 0
            return self._given[at] if at < len(self._given) else None
        if line.opcode == "get-tuple-element":
            return self._element(line)
        if line.opcode == "fusion":
            return self._of_fusion(line, None)
        given = [self._number(name) for name in line.operands]
        if line.opcode == "select" and given[0] is not None:
            return given[1] if given[0] else given[2]
        whole = [one for one in given if one is not None]
        if not given or len(whole) < len(given):
            return None
        return _computed(line, whole)

    def _element(self, line: Line) -> int | None:
        index, of = _INDEX.search(line.rest), self._lines.get(line.operands[0])
        if index is None or of is None:
            return None
        at = int(index[1])
        if of.opcode == "parameter":
            return self._state[at] if at < len(self._state) else None
        return self._of_fusion(of, at) if of.opcode == "fusion" else None

    def _of_fusion(self, line: Line, at: int | None) -> int | None:
        """What a fusion gives; of several results the one at a place."""
        if line.name not in self._fused:
            called = _CALLS.search(line.rest)
            lines = self._computations.get(called[1], ()) if called is not None else ()
            self._fused[line.name] = _Computation(lines, self._computations)
        inside = self._fused[line.name]
        inside._begin(given=[self._number(name) for name in line.operands])  # noqa: SLF001
        root = inside._root  # noqa: SLF001
        if root is None:
            return None
        name = root.name if at is None else root.operands[at] if at < len(root.operands) else ""
        return inside._number(name)  # noqa: SLF001


def _computed(line: Line, given: Sequence[int]) -> int | None:
    if line.opcode in _SAME:
        return given[0]
    if line.opcode == "not":
        return int(not given[0]) if line.shape.startswith("pred") else ~given[0]
    if line.opcode == "compare":
        direction = _DIRECTION.search(line.rest)
        compared = _COMPARED.get(direction[1]) if direction is not None else None
        return None if compared is None else int(compared(given[0], given[1]))
    done = _SUMS.get(line.opcode)
    return done(given[0], given[1]) if done is not None else None


def _wrapped(number: int, line: Line) -> int | None:
    """A number in the type of an instruction; None if that holds no whole numbers."""
    if line.shape.startswith("pred"):
        return int(bool(number))
    found = _WHOLE.match(line.shape)
    if found is None:
        return None
    span = 1 << int(found[2])
    number %= span
    return number - span if found[1] == "s" and number >= span // 2 else number
