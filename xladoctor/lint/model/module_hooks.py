"""Hooks that a program registers on modules: they run with the forward and backward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.training import method
from xladoctor.lint.model.values import Arguments, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Function
    from xladoctor.lint.model.training import Training

#: Calls from where a hook is registered out to where the program trains.
_DEPTH = 3


def given_to_hook(registers: str, module: Value) -> Arguments:
    """What a module calls a hook with: itself, what it is given, and what it gives back."""
    tensor = Value(Kind.DEVICE_TENSOR, local=True)
    itself = module if module.kind is Kind.MODEL else Value(Kind.MODEL, on_device=True)
    given = [(None, itself), (None, container(tensor))]
    # The gradients of a backward pass are tuples.
    after = {know.FORWARD_HOOK: tensor, know.BACKWARD_HOOK: container(tensor)}.get(registers)
    return given if after is None else [*given, (None, after)]


def trained_with(flow: Flow, training: Training) -> Iterator[Function]:
    """The hooks that are there while the program trains.

    Those of a summary, or of an evaluation, are removed again, or registered when it has trained.
    """
    for call in flow.tree.calls:
        if method(call) in know.MODULE_HOOKS and call.args:
            functions = flow.value(call.args[0].value).each_function
            if functions and _trains_behind(flow, training, call, _DEPTH):
                yield from functions


def _trains_behind(flow: Flow, training: Training, call: cst.Call, depth: int) -> bool:
    """Whether backward passes or steps follow a call, here or where its function is called."""
    order = flow.tree.order
    home = training.graph.home[call]
    for later in training.graph.calls_in(home):
        if order[later] <= order[call]:
            continue
        if _removes(later):
            return False
        if any(training.trains(inner, 0) for inner in (later, *training.graph.reached(later))):
            return True
    callers = flow.callers(home) if home is not None and depth else ()
    return any(_trains_behind(flow, training, one, depth - 1) for one in callers)


def _removes(call: cst.Call) -> bool:
    """``handle.remove()``; ``handles.remove(handle)`` is of a list."""
    return method(call) == "remove" and not call.args
