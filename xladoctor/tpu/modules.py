"""Recorded graphs, made ready for the TPU compiler: each instruction carries its number.

The compiler keeps the file and row of an instruction through all it does, and nothing else that
tells which one it was (libtpu 0.0.21: stack frames and names are lost). So the number of each
instruction is written into its row before compilation, and what the compiler says is traced back
through it. A graph whose files have moved is still the same graph, and found in the cache.

Fields of XLA's protocol buffers that are used (xla/service/hlo.proto, xla/xla_data.proto):
``HloProto`` 1 module; ``HloModuleProto`` 2 name of the entry, 3 computations, 4 program shape, 6 id
of the entry, 8 aliases (entries: 1 index of the result, 2 number of the parameter, 4 kind: 1 may
alias), 17 stack frames; ``HloComputationProto`` 2 instructions, 5 id, 6 root;
``HloInstructionProto`` 1 name, 2 opcode, 3 shape (2 type, 3 sizes), 7 metadata, 9 number of the
parameter, 35 id, 36 operands, 40 sharding, 49 and 87 replica groups; ``OpMetadata`` 2 name, 3 file,
4 row, 15 stack frame.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.errors import SourceError
from xladoctor.readings.hlo import stacks_of
from xladoctor.readings.wire import LENGTH, field, fields, messages, number, packed, parts

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
        shape: Of its result, "f32[8,2]"; "" of a tuple.
        operation: As torch_xla noted it ("aten::mm"); "" if it did not.
        frames: The Python stack when it was traced, innermost first; for an operation of the
            backward pass, which is traced without a stack, that of the forward operation.
        backward: Whether it is of the backward pass.
    """

    opcode: str
    shape: str
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
        donated: How many results take the memory of an input.
        sharded: Whether tensors are cut up between devices (SPMD): then the graph is of all of
            them together, and what it costs one of them is not known before it is partitioned.
        cores: The largest number of a core that a collective names, and one; 0 if none is named
            (then a collective is of all cores).
    """

    module: bytes
    digest: str
    sources: tuple[Source, ...]
    collectives: int
    donated: int
    sharded: bool
    cores: int

    def source(self, row: int | None) -> Source | None:
        """The source of a numbered instruction; None without a number or beyond the graph."""
        if row is None or not 0 < row <= len(self.sources):
            return None
        return self.sources[row - 1]


def read(path: Path, *, donate: bool = False) -> Prepared:
    """Read and prepare a graph of a run directory (``graphs/0003.pb.z``).

    Args:
        path: The file.
        donate: See :func:`prepare`.

    Raises:
        SourceError: It is missing, cut, or no graph.
    """
    try:
        return prepare(files.unpacked(path), donate=donate)
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


def prepare(data: bytes, *, donate: bool = False) -> Prepared:
    """Prepare a serialized ``HloProto`` or ``HloModuleProto``.

    Args:
        data: The graph.
        donate: Whether updated tensors take the memory of the old ones. At the end of a step
            torch_xla donates the buffers of tensors that were updated in place; a graph of
            simulated cores, or one that was never run, does not say so. Each result then takes
            the memory of an input of its type and sizes from which it was computed, the nearest
            first: for a step that updates parameters and optimizer state in place, these are the
            old ones, or others of the same size.

    Raises:
        SourceError: It is neither.
    """
    try:
        module = _module(data)
        numbered = _Numbering(module, donate=donate)
    except (IndexError, ValueError, KeyError) as error:
        raise SourceError("this is not a graph of XLA, or it was cut; profile again") from error
    return Prepared(
        module=numbered.module,
        digest=hashlib.sha256(numbered.module).hexdigest()[:32],
        sources=numbered.sources(),
        collectives=numbered.collectives,
        donated=numbered.donated,
        sharded=numbered.sharded,
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
    shape: str
    parameter: int | None
    computation: int
    key: int


class _Numbering:
    """A module whose instructions carry their numbers."""

    def __init__(self, module: bytes, *, donate: bool) -> None:
        self._stacks = stacks_of(module)
        self._found: dict[tuple[int, int], _Instruction] = {}
        self._roots: dict[int, int] = {}
        self._parameters: dict[tuple[int, str], set[int]] = {}
        self.collectives = 0
        self.donated = 0
        self.sharded = False
        self.cores = 0
        out = []
        for key, _, value, whole in parts(module):
            if key == 3 and isinstance(value, bytes):
                out.append(field(3, self._computation(value)))
            elif key not in (5, 17):  # a running number; the stack frames, which are in ``sources``
                out.append(whole)
        found = dict(fields(module))
        if donate and not found.get(8) and not found.get(18):  # neither aliases nor donors
            pairs = self._donations(int(found.get(6) or 0))
            entries = [field(1, number(result)) + field(2, p) + field(4, 1) for result, p in pairs]
            out.append(field(8, b"".join(field(1, entry) for entry in entries)))
            self.donated = len(pairs)
        self.module = b"".join(out)

    def _donations(self, entry: int) -> list[tuple[int, int]]:
        """Results of the graph, and the parameters whose memory they take."""
        root = self._found.get((entry, self._roots.get(entry, 0)))
        if root is None or root.opcode != "tuple":
            return []
        used: set[int] = set()
        pairs = []
        for index, operand in enumerate(root.operands):
            result = self._found[operand]
            free = self._parameters.get((entry, result.shape), set()) - used
            nearest = self._nearest(result, free) if result.opcode != "parameter" else None
            if nearest is not None:
                used.add(nearest)
                pairs.append((index, nearest))
        return pairs

    def _nearest(self, result: _Instruction, free: set[int]) -> int | None:
        """The nearest of some parameters that a result was computed from."""
        seen: set[tuple[int, int]] = set()
        row = list(result.operands)
        while row and free:
            following: list[tuple[int, int]] = []
            for key in row:
                one = self._found[key]
                if one.parameter in free:
                    return one.parameter
                if key not in seen:
                    seen.add(key)
                    following += one.operands
            row = following
        return None

    def _computation(self, data: bytes) -> bytes:
        facts = dict(fields(data))
        computation = int(facts.get(5) or 0)
        self._roots[computation] = int(facts.get(6) or 0)
        out = []
        for key, _, value, whole in parts(data):
            if key == 2 and isinstance(value, bytes):
                out.append(field(2, self._instruction(value, computation)))
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
            if key == 40 and isinstance(value, bytes):
                self.sharded = self.sharded or _tiled(value)
            if key in (49, 87) and isinstance(value, bytes):
                self.cores = max(self.cores, *(1 + one for one in _replicas(key, value)), 0)
        row = len(self._found) + 1
        opcode = _text(found.get(2))
        shape = _shape(found.get(3))
        parameter = int(found.get(9) or 0) if opcode == "parameter" else None
        if parameter is not None:
            self._parameters.setdefault((computation, shape), set()).add(parameter)
        kept = b"".join(whole for key, _, _, whole in parts(metadata) if key in (1, 2))
        kept += field(3, NUMBERED.encode()) + field(4, row)
        names = messages(metadata, 2)
        place = dict(fields(metadata))
        name = _text(found.get(1))
        if place.get(3) and name not in self._stacks:  # noted without a stack
            self._stacks[name] = ((_text(place[3]), int(place.get(4) or 0), ""),)
        own = int(found.get(35) or 0)
        self._found[computation, own] = _Instruction(
            name,
            opcode,
            _operation(_text(names[0]) if names else ""),
            row,
            tuple((computation, one) for one in operands),
            shape,
            parameter,
            computation,
            own,
        )
        self.collectives += opcode in _COLLECTIVES
        return b"".join(out) + field(7, kept)

    def sources(self) -> tuple[Source, ...]:
        """Where each instruction comes from, by its number."""
        users: dict[tuple[int, int], list[_Instruction]] = {}
        for one in self._found.values():
            for operand in one.operands:
                users.setdefault(operand, []).append(one)
        frames: dict[int, tuple[Frame, ...]] = {}
        unknown = []
        for one in self._found.values():
            frames[one.number] = self._stacks.get(one.name, ())
            if not frames[one.number] and one.opcode not in ("parameter", "constant", "tuple"):
                frames[one.number] = self._forward(one, users)
                unknown.append(one)
        # What one operation of the backward pass was traced into belongs together.
        for one in (*unknown, *reversed(unknown)):
            if not frames[one.number]:
                near = [self._found[key] for key in one.operands if key in self._found]
                near += users.get((one.computation, one.key), [])
                frames[one.number] = next(
                    (
                        frames[n.number]
                        for n in near
                        if n.operation == one.operation and frames[n.number]
                    ),
                    (),
                )
        backward = {one.number for one in unknown}
        return tuple(
            Source(one.opcode, one.shape, one.operation, frames[one.number], one.number in backward)
            for one in self._found.values()
        )

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
    """The cores that replica groups name: one group a field (49), or a list of them (87)."""
    if key == 49:
        for one, inner in fields(value):
            if one == 1:
                yield from packed(inner) if isinstance(inner, bytes) else [inner]
        return
    for group in messages(value, 1):
        yield from _replicas(49, group)
    for regular in messages(value, 2):  # so many groups of so many cores, in order
        counts = dict(fields(regular))
        yield int(counts.get(1) or 1) * int(counts.get(2) or 1) - 1


#: Numbers of XLA's types (xla_data.proto).
_TYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 21: "s4", 22: "u4",
}  # fmt: skip


def _shape(value: bytes | int | None) -> str:
    """A shape as text, without its layout; "" of a tuple."""
    if not isinstance(value, bytes):
        return ""
    dtype, sizes = 0, []
    for key, one in fields(value):
        if key == 2 and isinstance(one, int):
            dtype = one
        elif key == 3:
            sizes += packed(one) if isinstance(one, bytes) else [one]
    if dtype in (0, 13):
        return ""
    return f"{_TYPES.get(dtype, f'type{dtype}')}[{','.join(map(str, sizes))}]"


def _tiled(sharding: bytes) -> bool:
    """Whether a sharding cuts a tensor up (``OpSharding``: 1 type, 3 if so; 5 those of a tuple)."""
    return dict(fields(sharding)).get(1) == 3 or any(map(_tiled, messages(sharding, 5)))


def _operation(name: str) -> str:
    """Torch's name of an operation ("aten::mm") from what torch_xla noted ("aten__mm")."""
    return name.rpartition("/")[2].replace("__", "::", 1).replace("_overrideable", "")


def _text(value: bytes | int | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
