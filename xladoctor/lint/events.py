"""What happens in a program, one thing at a time: the rows of the stream of ``effects``."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.library import Effect, Name
    from xladoctor.lint.model.calls import CallSite


class How(enum.Enum):
    """In which way a read is written."""

    METHOD = "a method of the tensor"
    CAST = "a cast to a Python number"
    LIBRARY = "a function that looks at its values"
    STORE = "a store into a CPU tensor"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Event:
    """One thing that happens when a node runs.

    Attributes:
        effect: What happens.
        node: Where: a call as a rule.
        call: The call, if it is one.
        name: What the library knows of what is called.
        value: Of a read: the device tensor that is read.
        how: Of a read: in which way.
    """

    effect: Effect
    node: cst.CSTNode
    call: CallSite | None = None
    name: Name | None = None
    value: cst.BaseExpression | None = None
    how: How | None = None
