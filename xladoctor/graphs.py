"""A graph that XLA compiled, in the words of the program: operations, shapes and source lines.

``diagnosis.graph_view`` makes these out of recorded graphs; ``report`` shows them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xladoctor.findings import Location
    from xladoctor.results import Compilation


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One operation of torch, as one or several instructions of XLA.

    Attributes:
        name: As torch names it ("aten::mm"), or XLA ("dot") where torch's name was not noted.
        inputs: Shapes of what it takes ("f32[16,24]"); of constants their values.
        outputs: Shapes of its results.
        location: The user's line; None for the backward pass, which is traced without lines.
        instructions: How many instructions of XLA it is.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    location: Location | None
    instructions: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A recorded graph.

    Attributes:
        number: Its number in the run, from 1.
        compilation: What the report says of it.
        inputs: Shapes of its inputs, in their order.
        outputs: Shapes of its results.
        operations: In the order in which they were traced.
        instructions: How many instructions of XLA it has.
        lines_of: Number of the graph whose operations and lines these are: in a program that had
            settled they were no longer noted. None if they are its own.
        noted: Whether there are lines at all.
    """

    number: int
    compilation: Compilation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    instructions: int
    lines_of: int | None = None
    noted: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What differs at one line between an earlier graph and a new one.

    Attributes:
        kind: "removed" (only the earlier graph has it), "added", or "changed".
        name: The operation, "input 5" or "constant".
        before, after: Shapes, or values of a constant; None on the side that has none.
        count: How many alike.
        origin: Whether the difference begins here: what it takes is the same in both graphs.
    """

    kind: str
    name: str
    before: str | None
    after: str | None
    count: int = 1
    origin: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LineChanges:
    """The changes at one line; ``location`` is None for inputs and the backward pass."""

    location: Location | None
    changes: tuple[Change, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """What differs from an earlier graph to a new one.

    Attributes:
        old, new: Their numbers in the run.
        inputs: Changes of inputs.
        lines: Changes by line, in the order of the program.
        same: Share of computing instructions that both have, 0 to 1.
    """

    old: int
    new: int
    inputs: tuple[Change, ...]
    lines: tuple[LineChanges, ...]
    same: float

    @property
    def empty(self) -> bool:
        """Whether nothing that is compared differs."""
        return not self.inputs and not self.lines
