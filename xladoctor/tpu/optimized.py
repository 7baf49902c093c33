"""Reads an optimized graph as the TPU compiler prints it: the schedule and what each step costs.

Facts used (libtpu 0.0.21): the text is in the order of the schedule; ``estimated_cycles`` stands
in the ``backend_config`` of fusions, convolutions and copies that the compiler has costed, and
nowhere for gathers, scatters, collectives and what is moved in the background; how often a loop
runs is not said (``loops`` finds it).
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.readings.hlo import COMMENT
from xladoctor.tpu import loops, products, shapes, traffic
from xladoctor.tpu.compiled import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SOURCE = re.compile(r'source_file="xladoctor" source_line=(\d+)')
_WHOLE = re.compile(r"-?\d+")
_BODY = re.compile(r"body=%?([\w.\-]+)")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"(?:branch_computations=\{([^}]*)\}|true_computation=%?([\w.\-]+))")
_ELSE = re.compile(r"false_computation=%?([\w.\-]+)")
_NAME = re.compile(r"%([\w.\-]+)")
_GROUPS = re.compile(r"replica_groups=(\{\}|\{\{.*?\}\}|\[[^ ]*)")
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

#: Bytes of a single number, the widest.
_ONE_NUMBER = 16

#: What moves elements and computes nothing.
_MOVES = frozenset(
    {"copy", "copy-start", "copy-done", "transpose", "bitcast", "reshape", "slice", "pad",
     "concatenate", "dynamic-slice", "parameter", "constant", "tuple", "get-tuple-element"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One instruction as it is printed; a parameter has its number, a whole constant its value."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str
    root: bool = False
    number: int | None = None

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
        return tuple(self._walk(self._entry, 1, known=True))

    def sources(self) -> Mapping[str, int]:
        """The numbers of the instructions of the schedule by name, as far as they are known."""
        return _sources(self._computations.get(self._entry, []))

    def _walk(self, computation: str, runs: int, *, known: bool) -> Iterator[Operation]:
        lines = self._computations.get(computation, [])
        shapes_of = {line.name: line.shape for line in lines}
        sources = _sources(lines)
        waves = self._waves(computation)
        for line in lines:
            if line.opcode in _FREE:
                continue
            inner = self._inner(line, lines)
            if inner:
                for name, iterations in inner:
                    sure = known and iterations is not None
                    turns = 1 if iterations is None else iterations
                    yield from self._walk(name, runs * turns, known=sure)
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
                sent=sum(map(shapes.unpadded, operands)) if line.name in waves else 0,
                wave=waves.get(line.name, ""),
                counted_once=not known,
            )

    def _waves(self, computation: str) -> dict[str, str]:
        """By the name of each collective: which others could be one with it.

        torch_xla orders collectives by a number that each takes beside its data and gives to the
        next one (2.9); that is no need of a result.
        """
        lines = self._computations.get(computation, [])
        single = {line.name for line in lines if shapes.unpadded(line.shape) <= _ONE_NUMBER}
        depth: dict[str, int] = {}
        waves = {}
        for line in lines:
            needs = line.operands
            collective = not line.opcode.endswith("-done") and self._kind(line) == "collective"
            if collective:
                needs = tuple(name for name in needs if name not in single) or needs
            depth[line.name] = max((depth.get(name, 0) for name in needs), default=0) + collective
            if collective:
                how = _GROUPS.search(line.rest)
                parts = (computation, line.opcode, how[1] if how else "", str(depth[line.name]))
                waves[line.name] = " ".join(parts)
        return waves

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

    def _inner(self, line: Line, around: Sequence[Line]) -> list[tuple[str, int | None]]:
        """Computations that run as steps of their own, and how often; None if it is not known."""
        if line.opcode == "while":
            body = _BODY.search(line.rest)
            turns = loops.iterations(line, around, self._computations)
            return [(body[1], turns)] if body else []
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
            return sum(operation.total_cycles for operation in self._walk(name, 1, known=True))

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
        number=_number(inside) if operands == () else None,
    )  # fmt: skip


def _number(text: str) -> int | None:
    if text in ("true", "false"):
        return int(text == "true")
    return int(text) if _WHOLE.fullmatch(text) else None


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at a place is closed."""
    depth = 0
    for found in re.finditer(r"[()]", text[opening:]):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return opening + found.start()
    return len(text)
