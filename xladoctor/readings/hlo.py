"""Graphs as XLA was given them (HLO text and its protobuf), reduced to what explains a new graph.

Facts used (XLA of torch_xla 2.9.0, seen in its dumps):

* The text names each instruction, its shape, operands and attributes; the entry computation is
  the graph, the others are bodies of loops and reductions.
* The protobuf holds the Python stack of each instruction: ``HloModuleProto.stack_frame_index``
  (field 17: file names 1, function names 2, locations 3 (file 1, function 2, row 3), frames 4
  (location 1, parent 2); numbers count from 1), pointed at by field 15 of the metadata (field 7)
  of an instruction (name: field 1). Operations of the backward pass have none: they are traced in
  a thread without Python frames.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.readings.wire import messages, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xladoctor.readings.tables import Frame

_LAYOUT = re.compile(r"(?<=\])\{[^}]*\}")
_NAME = re.compile(r"%[\w.\-]+")
_METADATA = re.compile(r",? metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}")
_OPERATION = re.compile(r'op_type="([^"]*)"')
_BITS = re.compile(r"\d+")
#: What XLA's printer puts between the parts of a line ("/*index=5*/").
COMMENT = re.compile(r"/\*.*?\*/")

#: Longest literal or attribute text that is kept.
_LONGEST = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a graph.

    Attributes:
        name: Unique in its graph; may differ in another one.
        opcode: XLA's name ("slice").
        shape: Type and sizes without layout ("f32[8,2]").
        operands: Names of the instructions whose results it takes.
        detail: What else tells it apart: a literal, a parameter's attributes, slice bounds.
        operation: torch's name of what was traced ("aten::slice"), "" if not known.
        number: Of a parameter, its position among the inputs.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    detail: str
    operation: str
    number: int | None = None


class Graph:
    """One graph, read from the files of a run directory.

    Args:
        base: Path without ending ("run/p1-2/graphs/0003").
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self.instructions = tuple(_instructions(_unpack(base.with_name(base.name + ".txt.z"))))
        self.by_name = {one.name: one for one in self.instructions}

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """Shapes of the results."""
        last = self.instructions[-1] if self.instructions else None
        if last is None:
            return ()
        if last.opcode != "tuple":
            return (last.shape,)
        return tuple(self.by_name[n].shape for n in last.operands if n in self.by_name)

    @functools.cached_property
    def has_operations(self) -> bool:
        """Whether torch's operations were noted when this graph was traced."""
        return any(one.operation for one in self.instructions)

    @functools.cached_property
    def _users(self) -> dict[str, list[Instruction]]:
        found: dict[str, list[Instruction]] = {}
        for one in self.instructions:
            for operand in one.operands:
                found.setdefault(operand, []).append(one)
        return found

    def users(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that take an instruction's result."""
        return self._users.get(instruction.name, [])

    def frames(self, instruction: Instruction) -> tuple[Frame, ...]:
        """Where an instruction was traced, innermost first; empty if that is not known."""
        return self._frames.get(instruction.name, ())

    @functools.cached_property
    def _frames(self) -> dict[str, tuple[Frame, ...]]:
        try:
            modules = messages(_unpack(self._base.with_name(self._base.name + ".pb.z")), 1)
            return stacks_of(modules[0]) if modules else {}
        except (IndexError, ValueError, KeyError):
            return {}


def operation_of(attributes: str) -> str:
    """Torch's name of what an instruction was traced from ("aten::slice"), "" if not known."""
    found = _OPERATION.search(attributes)
    return found[1].replace("__", "::", 1) if found else ""


def item_bytes(dtype: str) -> float:
    """Bytes of an element of one of XLA's types ("bf16", "s4", "pred")."""
    bits = _BITS.search(dtype)
    return int(bits[0]) / 8 if bits else 1.0


def _unpack(path: Path) -> bytes:
    """The content of a packed file; b"" if it is missing, cut or a bomb."""
    try:
        return files.unpacked(path)
    except OSError:
        return b""


def _instructions(data: bytes) -> Iterator[Instruction]:
    inside = False
    for line in io.StringIO(data.decode("utf-8", "replace")):
        if line.startswith("ENTRY "):
            inside = True
        elif inside and line.startswith("}"):
            return
        elif inside:
            found = _instruction(line.strip().removeprefix("ROOT "))
            if found is not None:
                yield found


def _instruction(line: str) -> Instruction | None:
    name, _, rest = COMMENT.sub("", line).partition(" = ")
    if not name.startswith("%") or not rest:
        return None
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.find(" ")
    shape, rest = rest[:end], rest[end:].strip()
    opcode, bracket, _ = rest.partition("(")
    if not bracket:
        return None
    close = _closing(rest, len(opcode))
    inner, after = rest[len(opcode) + 1 : close], rest[close + 1 :]
    operation = operation_of(after)
    operands: tuple[str, ...] = ()
    detail = _NAME.sub("%", _METADATA.sub("", after)).strip(", ")
    if opcode == "constant":
        detail = inner
    elif opcode != "parameter":
        operands = tuple(found[1:] for found in _NAME.findall(inner))
    return Instruction(
        name[1:],
        opcode,
        _LAYOUT.sub("", shape),
        operands,
        detail[:_LONGEST],
        operation,
        int(inner) if opcode == "parameter" and inner.isdigit() else None,
    )


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at a place is closed."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)


# -- the protobuf, as far as it is needed ----------------------------------------------------------
def stacks_of(module: bytes) -> dict[str, tuple[Frame, ...]]:
    """Instruction's name to its frames, innermost first, of a serialized ``HloModuleProto``."""
    indexes = messages(module, 17)
    if not indexes:
        return {}
    files = [text.decode("utf-8", "replace") for text in messages(indexes[0], 1)]
    functions = [text.decode("utf-8", "replace") for text in messages(indexes[0], 2)]
    places = [numbers(message) for message in messages(indexes[0], 3)]
    nodes = [numbers(message) for message in messages(indexes[0], 4)]

    @functools.cache
    def stack(number: int) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        while 0 < number <= len(nodes) and len(frames) < len(nodes):
            node = nodes[number - 1]
            place = places[node[1] - 1]
            frames.append((files[place[1] - 1], place.get(3, 0), functions[place[2] - 1]))
            number = node.get(2, 0)
        return tuple(frames)

    found: dict[str, tuple[Frame, ...]] = {}
    for computation in messages(module, 3):
        for instruction in messages(computation, 2):
            names = messages(instruction, 1)
            metadata = messages(instruction, 7)
            number = numbers(metadata[0]).get(15, 0) if metadata else 0
            if names and number:
                found[names[0].decode("utf-8", "replace")] = stack(number)
    return found
