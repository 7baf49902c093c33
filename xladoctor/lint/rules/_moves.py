"""Where something is moved to a device: by its own method, or by a helper that only does that."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.lint.model import Function
from xladoctor.lint.model.helpers import moved_parameter, only_returned
from xladoctor.lint.model.knowledge import SENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel


#: Methods that move a tensor to a device, or to where another one is.
_MOVE = frozenset({"to", "type_as"})


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """``x.to(device)``, or ``gpu(x)`` where that is all that ``gpu`` does.

    Attributes:
        call: The call that a person changes.
        source: What is moved.
        origin: The call of ``to`` itself, which is what a moved value says that it comes from.
    """

    call: CallSite
    source: cst.BaseExpression
    origin: CallSite


def moves(model: FileModel) -> Iterator[Move]:
    """All moves of a file, in its order; what a helper moves stands where it is called."""
    for call in model.calls():
        if call.method in _MOVE and call.name is None and call.receiver is not None:
            if not _is_of_helper(model, call):
                yield Move(call, call.receiver, call)
        elif call.name == SENDS and (given := call.argument(0, "datas")) is not None:
            yield Move(call, given, call)
        elif (move := by_helper(model, call)) is not None:
            yield move


def by_helper(model: FileModel, call: CallSite) -> Move | None:
    """The move that a call makes whose function does nothing else."""
    function = call.target
    if not isinstance(function, Function) or (name := moved_parameter(function)) is None:
        return None
    source = call.given_to(function, name)
    made = only_returned(function)
    return None if source is None else Move(call, source, model.call(made))  # type: ignore[arg-type]


def _is_of_helper(model: FileModel, call: CallSite) -> bool:
    """Whether a call of ``to`` is all that its function does, and that is called in the program."""
    function = call.function
    return (
        function is not None
        and moved_parameter(function) is not None
        and bool(model.callers(function))
    )
