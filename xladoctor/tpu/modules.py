"""Recorded graphs, made ready for the TPU compiler: each instruction carries its number.

The compiler keeps the file and row of an instruction through all it does, and nothing else that
tells which one it was (libtpu 0.0.21: stack frames and names are lost). So the number of each
instruction is written into its row before compilation, and what the compiler says is traced back
through it. A graph whose files have moved is still the same graph, and found in the cache.

Fields of XLA's protocol buffers that are used (xla/service/hlo.proto, xla/xla_data.proto):
``HloProto`` 1 module; ``HloModuleProto`` 2 name of the entry, 3 computations, 4 program shape,
17 stack frames; ``HloComputationProto`` 2 instructions, 5 id, 6 root; ``HloInstructionProto``
1 name, 2 opcode, 3 shape, 7 metadata, 35 id, 36 operands, 49 and 87 replica groups;
``OpMetadata`` 2 name, 3 file, 4 row, 15 stack frame.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.errors import SourceError
from xladoctor.readings.hlo import stacks_of
from xladoctor.readings.wire import LENGTH, field, fields, messages, packed, parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from xladoctor.readings.tables import Frame

#: What stands where the file of an instruction stood: the reader knows our numbers by it.
NUMBERED = "xladoctor"

_COLLECTIVES = frozenset(
    {
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
        "collective-broadcast", "all-reduce-start", "all-gather-start", "collective-permute-start",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where an instruction of a recorded graph comes from.

    Attributes:
        opcode: XLA's name ("convolution").
        operation: As torch_xla noted it ("aten::mm"); "" if it did not.
        frames: The Python stack when it was traced, innermost first; for an operation of the
            backward pass, which is traced without a stack, that of the forward operation.
        backward: Whether it is of the backward pass.
    """

    opcode: str
    operation: str
    frames: tuple[Frame, ...]
    backward: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A graph that can be compiled.

    Attributes:
        module: ``HloModuleProto``, its instructions numbered.
        digest: Of ``module``: the same for the same graph, wherever its lines are.
        sources: By the number of the instruction, from 1.
        collectives: How many collectives it has.
        cores: The largest number of a core that a collective names, and one; 0 if none is named
            (then a collective is of all cores).
    """

    module: bytes
    digest: str
    sources: tuple[Source, ...]
    collectives: int
    cores: int

    def source(self, number: int | None) -> Source | None:
        """The source of a numbered instruction; None without a number or beyond the graph."""
        if number is None or not 0 < number <= len(self.sources):
            return None
        return self.sources[number - 1]


def read(path: Path) -> Prepared:
    """Read and prepare a graph of a run directory (``graphs/0003.pb.z``).

    Raises:
        SourceError: It is missing, cut, or no graph.
    """
    try:
        return prepare(files.unpacked(path))
    except FileNotFoundError as error:
        raise SourceError(
            f"{path}: this graph is missing from the run directory; profile again"
        ) from error
    except OSError as error:
        raise SourceError(
            f"{path}: this graph was cut or cannot be read ({error}); profile again"
        ) from error
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from error


def prepare(data: bytes) -> Prepared:
    """Prepare a serialized ``HloProto`` or ``HloModuleProto``.

    Raises:
        SourceError: It is neither.
    """
    try:
        module = _module(data)
        numbered = _Numbering(module)
    except (IndexError, ValueError, KeyError) as error:
        raise SourceError("this is not a graph of XLA, or it was cut; profile again") from error
    return Prepared(
        module=numbered.module,
        digest=hashlib.sha256(numbered.module).hexdigest()[:32],
        sources=numbered.sources(),
        collectives=numbered.collectives,
        cores=numbered.cores,
    )


def _module(data: bytes) -> bytes:
    """The module of a graph that may be wrapped in an ``HloProto``."""
    found = dict(fields(data))
    if 2 in found and 3 in found:  # the name of the entry, computations
        return data
    inner = found.get(1)
    if not isinstance(inner, bytes) or 3 not in dict(fields(inner)):
        raise ValueError("no module")
    return inner


@dataclasses.dataclass(slots=True)
class _Instruction:
    name: str
    opcode: str
    operation: str
    number: int
    operands: tuple[tuple[int, int], ...]


class _Numbering:
    """A module whose instructions carry their numbers."""

    def __init__(self, module: bytes) -> None:
        self._stacks = stacks_of(module)
        self._found: dict[tuple[int, int], _Instruction] = {}
        self.collectives = 0
        self.cores = 0
        out = []
        for key, _, value, whole in parts(module):
            if key == 3 and isinstance(value, bytes):
                out.append(field(3, self._computation(value)))
            elif key not in (5, 17):  # a running number; the stack frames, which are in ``sources``
                out.append(whole)
        self.module = b"".join(out)

    def _computation(self, data: bytes) -> bytes:
        number = dict(fields(data)).get(5, 0)
        assert isinstance(number, int)
        out = []
        for key, _, value, whole in parts(data):
            if key == 2 and isinstance(value, bytes):
                out.append(field(2, self._instruction(value, number)))
            else:
                out.append(whole)
        return b"".join(out)

    def _instruction(self, data: bytes, computation: int) -> bytes:
        found: dict[int, bytes | int] = {}
        operands: list[int] = []
        out = []
        metadata = b""
        for key, kind, value, whole in parts(data):
            found[key] = value
            if key == 36:
                operands += packed(value) if isinstance(value, bytes) else [value]
            if key == 7 and kind == LENGTH and isinstance(value, bytes):
                metadata = value
            else:
                out.append(whole)
            if key in (49, 87) and isinstance(value, bytes):
                self.cores = max(self.cores, *(1 + one for one in _replicas(key, value)), 0)
        number = len(self._found) + 1
        opcode = _text(found.get(2))
        kept = b"".join(whole for key, _, _, whole in parts(metadata) if key in (1, 2))
        kept += field(3, NUMBERED.encode()) + field(4, number)
        names = messages(metadata, 2)
        self._found[computation, int(found.get(35) or 0)] = _Instruction(
            _text(found.get(1)),
            opcode,
            _operation(_text(names[0]) if names else ""),
            number,
            tuple((computation, one) for one in operands),
        )
        self.collectives += opcode in _COLLECTIVES
        return b"".join(out) + field(7, kept)

    def sources(self) -> tuple[Source, ...]:
        """Where each instruction comes from, by its number."""
        users: dict[tuple[int, int], list[_Instruction]] = {}
        for one in self._found.values():
            for operand in one.operands:
                users.setdefault(operand, []).append(one)
        out = []
        for one in self._found.values():
            frames = self._stacks.get(one.name, ())
            backward = False
            if not frames and one.opcode not in ("parameter", "constant", "tuple"):
                frames, backward = self._forward(one, users), True
            out.append(Source(one.opcode, one.operation, frames, backward))
        return tuple(out)

    def _forward(
        self, one: _Instruction, users: dict[tuple[int, int], list[_Instruction]]
    ) -> tuple[Frame, ...]:
        """The stack of the forward operation that an operation of the backward pass belongs to.

        Both take the same tensors (a product its factors, a convolution its input and weight); if
        several do, it is the one with the most in common, and of these the one with its name.
        """
        shared: dict[int, int] = {}
        by_number: dict[int, _Instruction] = {}
        for operand in self._reached(one):
            for other in users.get(operand, ()):
                if self._stacks.get(other.name) and other.number != one.number:
                    shared[other.number] = shared.get(other.number, 0) + 1
                    by_number[other.number] = other
        if not shared:
            return ()
        stem = one.operation.partition("_backward")[0]
        best = max(
            shared,
            key=lambda n: (bool(stem) and by_number[n].operation.startswith(stem), shared[n], -n),
        )
        return self._stacks[by_number[best].name]

    def _reached(self, one: _Instruction) -> Iterator[tuple[int, int]]:
        """What an instruction takes, through those that only give a tensor another form."""
        waiting = [(operand, 0) for operand in one.operands]
        while waiting:
            operand, depth = waiting.pop()
            yield operand
            source = self._found.get(operand)
            if source is not None and depth < 3 and source.opcode in _FORMS:
                waiting += [(inner, depth + 1) for inner in source.operands]


_FORMS = frozenset({"reshape", "transpose", "broadcast", "convert", "copy", "reverse"})


def _replicas(key: int, value: bytes) -> Iterator[int]:
    """The cores that a replica group names (in the older form: one group a field)."""
    if key == 49:
        for number, inner in fields(value):
            if number == 1:
                yield from packed(inner) if isinstance(inner, bytes) else [inner]
        return
    for group in messages(value, 2):
        yield from _replicas(49, group)


def _operation(name: str) -> str:
    """Torch's name of an operation ("aten::mm") from what torch_xla noted ("aten__mm")."""
    return name.rpartition("/")[2].replace("__", "::", 1)


def _text(value: bytes | int | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
