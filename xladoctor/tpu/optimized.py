"""Reads an optimized graph as the TPU compiler prints it: the schedule and what each step costs.

Facts used (libtpu 0.0.21): the text is in the order of the schedule; ``estimated_cycles`` stands
in the ``backend_config`` of fusions, convolutions and copies that the compiler has costed, and
nowhere for gathers, scatters, collectives and what is moved in the background; a loop whose number
of iterations is known says it as ``known_trip_count``.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.readings.hlo import COMMENT
from xladoctor.tpu import products, traffic
from xladoctor.tpu.compiled import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SOURCE = re.compile(r'source_file="xladoctor" source_line=(\d+)')
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_BODY = re.compile(r"body=%?([\w.\-]+)")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|true_computation=%?([\w.\-]+))")
_ELSE = re.compile(r"false_computation=%?([\w.\-]+)")
_NAME = re.compile(r"%([\w.\-]+)")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')

#: What only names or regroups values, or makes none: it takes no time.
_FREE = frozenset(
    {
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all",
        "opt-barrier", "partition-id", "replica-id",
    }
)  # fmt: skip

#: Kinds by the opcodes that make them, the one that decides first.
_KINDS = (
    ("product", ("convolution", "dot")),
    ("collective", (
        "all-reduce", "all-reduce-start", "all-gather", "all-gather-start", "reduce-scatter",
        "all-to-all", "collective-permute", "collective-permute-start", "collective-broadcast",
    )),
    ("scatter", ("scatter", "select-and-scatter")),
    ("gather", ("gather",)),
    ("sort", ("sort", "topk")),
    ("random", ("rng-bit-generator", "rng", "rng-get-and-update-state")),
    ("reduction", ("reduce", "reduce-window")),
)  # fmt: skip

#: What moves elements and computes nothing.
_MOVES = frozenset(
    {"copy", "copy-start", "copy-done", "transpose", "bitcast", "reshape", "slice", "pad",
     "concatenate", "dynamic-slice", "parameter", "constant", "tuple", "get-tuple-element"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One instruction as it is printed; a parameter has its number."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str
    root: bool = False
    parameter: int | None = None

    @property
    def source(self) -> int | None:
        """The number that was written into the graph before compilation."""
        found = _SOURCE.search(self.rest)
        return int(found[1]) if found else None


class Optimized:
    """An optimized graph.

    Args:
        text: As ``HloModule.to_string`` prints it.
    """

    def __init__(self, text: str) -> None:
        self._computations: dict[str, list[Line]] = {}
        self._entry = ""
        inside: list[Line] = []
        for row in text.splitlines():
            if row.endswith("{") and not row.startswith((" ", "HloModule")):
                name = row.removeprefix("ENTRY ").lstrip("%").split(" ", 1)[0]
                inside = self._computations.setdefault(name, [])
                if row.startswith("ENTRY "):
                    self._entry = name
            elif row.startswith("  "):
                line = _line(row)
                if line is not None:
                    inside.append(line)

    def operations(self) -> tuple[Operation, ...]:
        """What runs, in the order of the schedule; the insides of fusions are not steps."""
        return tuple(self._walk(self._entry, 1))

    def sources(self) -> Mapping[str, int]:
        """The numbers of the instructions of the schedule by name, as far as they are known."""
        return _sources(self._computations.get(self._entry, []))

    def _walk(self, computation: str, runs: int) -> Iterator[Operation]:
        lines = self._computations.get(computation, [])
        shapes_of = {line.name: line.shape for line in lines}
        sources = _sources(lines)
        for line in lines:
            if line.opcode in _FREE:
                continue
            inner = self._inner(line)
            if inner:
                for name, iterations in inner:
                    yield from self._walk(name, runs * iterations)
                continue
            if line.opcode.endswith("-done"):  # counted where it starts
                continue
            cycles = _CYCLES.search(line.rest)
            operands = tuple(shapes_of.get(name, "") for name in line.operands)
            yield Operation(
                name=line.name,
                opcode=line.opcode,
                kind=self._kind(line),
                shape=line.shape,
                cycles=int(cycles[1]) if cycles else None,
                runs=runs,
                source=sources.get(line.name),
                memory_bytes=traffic.moved(line, shapes_of, self._fused(line)),
                operands=operands[:4],
                flops=self._flops(line, shapes_of),
            )

    def _fused(self, line: Line) -> Sequence[Line]:
        """The computation that is fused into an instruction."""
        called = _CALLS.search(line.rest) if line.opcode == "fusion" else None
        return self._computations.get(called[1], ()) if called is not None else ()

    def _flops(self, line: Line, shapes_of: Mapping[str, str]) -> float:
        """Of the products in an instruction, those that are fused into it included."""
        if line.opcode in ("convolution", "dot"):
            operands = [shapes_of.get(name, "") for name in line.operands]
            return products.flops(line.opcode, line.shape, operands, line.rest)
        called = _CALLS.search(line.rest) if line.opcode in ("fusion", "async-start") else None
        inside = self._computations.get(called[1], []) if called is not None else []
        known = {one.name: one.shape for one in inside}
        return sum(self._flops(one, known) for one in inside)

    def _inner(self, line: Line) -> list[tuple[str, int]]:
        """Computations that run as steps of their own, and how often."""
        if line.opcode == "while":
            iterations, body = _TURNS.search(line.rest), _BODY.search(line.rest)
            return [(body[1], int(iterations[1]) if iterations else 1)] if body else []
        if line.opcode == "call":
            called = _CALLS.search(line.rest)
            return [(called[1], 1)] if called else []
        if line.opcode == "conditional":
            return [(name, 1) for name in self._longest(line)]
        return []

    def _longest(self, line: Line) -> list[str]:
        """Of the branches of a condition, the one that costs most."""
        found = _BRANCHES.search(line.rest)
        names = [*_NAME.findall(found[1] or ""), found[2] or ""] if found else []
        other = _ELSE.search(line.rest)
        names = [name for name in [*names, other[1] if other else ""] if name]

        def cost(name: str) -> int:
            return sum(operation.total_cycles for operation in self._walk(name, 1))

        return [max(names, key=cost)] if names else []

    def _kind(self, line: Line) -> str:
        target = _TARGET.search(line.rest)
        if target is not None:
            return "emulation" if target[1].startswith("X64") else "elementwise"
        opcodes = self._opcodes(line, set())
        for kind, names in _KINDS:
            if not opcodes.isdisjoint(names):
                return kind
        return "copy" if opcodes <= _MOVES else "elementwise"

    def _opcodes(self, line: Line, seen: set[str]) -> set[str]:
        """The opcodes of an instruction and of what is fused into it."""
        if line.opcode not in ("fusion", "async-start"):
            return {line.opcode}
        called = _CALLS.search(line.rest)
        if called is None or called[1] in seen:
            return set()
        seen.add(called[1])
        found: set[str] = set()
        for inner in self._computations.get(called[1], ()):
            found |= self._opcodes(inner, seen)
        return found


def _sources(lines: Sequence[Line]) -> dict[str, int]:
    """The numbers of instructions; a copy that the compiler adds has that of what it copies."""
    known = {line.name: line.source for line in lines}
    users: dict[str, str] = {}
    for line in lines:
        for operand in line.operands:
            users.setdefault(operand, line.name)
    for line in lines:
        if known[line.name] is None:
            near = [known.get(name) for name in line.operands]
            near.append(known.get(users.get(line.name, "")))
            known[line.name] = next((one for one in near if one is not None), None)
    return {name: one for name, one in known.items() if one is not None}


def _line(row: str) -> Line | None:
    name, equals, rest = COMMENT.sub("", row).strip().removeprefix("ROOT ").partition(" = ")
    if not equals:
        return None
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    shape, rest = rest[:end], rest[end:].strip()
    opcode, bracket, _ = rest.partition("(")
    if not bracket:
        return None
    close = _closing(rest, len(opcode))
    operands = () if opcode in ("constant", "parameter") else tuple(
        _NAME.findall(rest[len(opcode) + 1 : close])
    )  # fmt: skip
    inside = rest[len(opcode) + 1 : close]
    return Line(
        name.lstrip("%"), shape, opcode, operands, rest[close + 1 :],
        root=row.lstrip().startswith("ROOT "),
        parameter=int(inside) if opcode == "parameter" and inside.isdecimal() else None,
    )  # fmt: skip


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at a place is closed."""
    depth = 0
    for found in re.finditer(r"[()]", text[opening:]):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return opening + found.start()
    return len(text)
