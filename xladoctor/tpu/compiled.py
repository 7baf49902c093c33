"""What the TPU compiler said of one graph: the types, and how the cache writes them down."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Why a graph has no cost: it needs more memory than there is; the compiler refuses an operation;
#: its process died; it took longer than allowed; the request could not be made.
REFUSALS = ("memory", "refused", "crashed", "too-slow", "not-asked")


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of device memory that one core needs for a graph, padding included.

    Attributes:
        arguments: Inputs (parameters of the model, optimizer state, the batch).
        output: Results.
        aliased: Of the output, what takes the memory of an input.
        temporary: What is alive between.
        code: The program.
    """

    arguments: int
    output: int
    aliased: int
    temporary: int
    code: int

    @property
    def total(self) -> int:
        """All that must be there at once."""
        return self.arguments + self.output - self.aliased + self.temporary + self.code


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """One tensor in device memory.

    Attributes:
        kind: "argument", "output" or "temporary".
        shape: As XLA writes it, with its layout ("f32[1000,1025]{0,1:T(8,128)}").
        size: Bytes that it takes.
        unpadded: Bytes of its elements alone; None if not known.
        source: Number of the instruction that makes it, in ``Prepared.sources``.
        first: When it comes into being, as a share of the schedule's operations; None if not known.
        last: When it has been used for the last time, likewise.
    """

    kind: str
    shape: str
    size: int
    unpadded: int | None = None
    source: int | None = None
    first: float | None = None
    last: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One step of the schedule.

    Attributes:
        name: As the compiler calls it ("fusion.12").
        opcode: XLA's name ("fusion").
        kind: What it does: "product" (matrix products, convolutions), "copy" (copies, transposes),
            "gather", "scatter", "sort", "collective", "random", "reduction", "emulation" (64-bit
            values in two halves) or "elementwise".
        shape: Of the result, with its layout.
        cycles: The compiler's estimate for one run; None if it makes none.
        runs: How often it runs (loops whose number of iterations is known).
        source: Number of the instruction that it comes from, in ``Prepared.sources``.
        memory_bytes: Bytes of its operands and results that lie in device memory (HBM).
        operands: Shapes of what it takes.
        flops: Floating point operations of its matrix products and convolutions in one run.
        sent: Bytes that one core gives to the others, of a collective in one run.
        wave: Collectives of one wave do the same between the same cores, and none needs the result
            of another: they could be one. "" of what is none.
        counted_once: Whether it is in a loop whose number of iterations the compiler does not know.
    """

    name: str
    opcode: str
    kind: str
    shape: str
    cycles: int | None
    runs: int = 1
    source: int | None = None
    memory_bytes: int = 0
    operands: tuple[str, ...] = ()
    flops: float = 0.0
    sent: int = 0
    wave: str = ""
    counted_once: bool = False

    @property
    def total_cycles(self) -> int:
        """Of all its runs; 0 where the compiler makes no estimate."""
        return (self.cycles or 0) * self.runs


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no program.

    Attributes:
        kind: One of :data:`REFUSALS`.
        message: One sentence.
        used: Bytes that the graph needs ("memory").
        limit: Bytes that there are ("memory").
        source: Number of the instruction that is refused, if the compiler names it.
    """

    kind: str
    message: str
    used: int | None = None
    limit: int | None = None
    source: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """The answer for one graph and one target.

    Attributes:
        digest: Of the graph (``Prepared.digest``).
        target: Name of the target.
        replicas: For how many cores it was compiled.
        compiler: "libtpu 0.0.21".
        seconds: How long the compiler took.
        memory: None if it was refused.
        flops: Floating point operations of one run of the graph on one core, as XLA counts them,
            and those of its loops by their turns.
        operations: In the order of the schedule.
        allocations: The largest tensors: those alive at the peak, or those that the compiler names
            when it refuses.
        picture: Bytes of temporary memory alive along the schedule, at even distances.
        refusal: None if there is a program.
        cached: Whether the answer was known from before.
    """

    digest: str
    target: str
    replicas: int
    compiler: str
    seconds: float
    memory: Memory | None = None
    flops: float | None = None
    operations: tuple[Operation, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    picture: tuple[int, ...] = ()
    refusal: Refusal | None = None
    cached: bool = False

    def fits(self, limit: int) -> bool | None:
        """Whether one core can run the graph with so many bytes; None if that is not known.

        The compiler itself refuses only what temporary tensors and arguments exceed (libtpu
        0.0.21); results need their place as well when the program runs.
        """
        if self.memory is not None:
            return self.memory.total <= limit
        return False if self.refusal is not None and self.refusal.kind == "memory" else None

    @property
    def cycles(self) -> int | None:
        """Estimated cycles of one run; None if there is no program."""
        if self.refusal is not None:
            return None
        return sum(operation.total_cycles for operation in self.operations)


def to_json(answer: Compiled) -> dict[str, Any]:
    """An answer as plain values."""
    return dataclasses.asdict(answer)


def from_json(data: Mapping[str, Any], **changes: Any) -> Compiled:
    """An answer from plain values.

    Raises:
        KeyError, TypeError: They are not an answer.
    """
    facts = dict(data)
    memory, refusal = facts["memory"], facts["refusal"]
    facts["memory"] = None if memory is None else Memory(**memory)
    facts["refusal"] = None if refusal is None else Refusal(**refusal)
    facts["operations"] = tuple(
        Operation(**{**one, "operands": tuple(one["operands"])}) for one in facts["operations"]
    )
    facts["allocations"] = tuple(Allocation(**one) for one in facts["allocations"])
    facts["picture"] = tuple(facts["picture"])
    return Compiled(**{**facts, **changes})
