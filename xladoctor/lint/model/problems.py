"""What a rule yields: a problem at a place of the source."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.findings import Fix, Position
    from xladoctor.lint.model.loops import Loop


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A range of the source text with what it has to do with a problem; ``end`` is exclusive.

    ``filename`` is that of another linked file; None for the file itself. ``loop`` is the loop that
    the place is, if it is one.
    """

    start: Position
    end: Position
    note: str = ""
    function: str | None = None
    filename: str | None = None
    loop: Loop | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What a rule yields; the engine makes a ``Finding`` of it. See ``FileModel.problem``."""

    place: Place
    message: str
    suggestion: str = ""
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    #: It stands in code that never runs on XLA devices, or in a unit test.
    aside: bool = False
    #: The node at ``place``, if it is one.
    node: cst.CSTNode | None = dataclasses.field(default=None, compare=False)
