"""XLA107: what a step closure is given was read already, is bound anew, or does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._arity import misfit
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._reads import costly_loop, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_CLOSURE = "torch_xla.core.xla_model.add_step_closure"
_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_CASTS = frozenset({"builtins.float", "builtins.int", "builtins.bool", "builtins.str"})


@rule("XLA107")
def closure_arguments(model: FileModel) -> Iterator[Problem]:
    """Find ``add_step_closure(f, args=(loss.item(),))`` and captures of what a loop binds anew.

    And arguments that are not those of the function.
    """
    for call in model.calls(_CLOSURE):
        given = call.argument(1, "args")
        yield from _does_not_fit(model, call, given)
        if isinstance(given, cst.Tuple | cst.List):
            for element in given.elements:
                read = _read(model, element.value)
                # A read on every step is reported for what it costs there: XLA101 to XLA103.
                if read is not None and costly_loop(model, call.node) is None:
                    yield _read_too_early(model, element.value, read)
        if given_true(model, call, "run_async") is not None:
            yield from _captures(model, call)


def _does_not_fit(
    model: FileModel, call: CallSite, given: cst.BaseExpression | None
) -> Iterator[Problem]:
    """``add_step_closure(log, args=(step, loss))`` of a ``log`` that takes three arguments."""
    closure = call.argument(0, "closure")
    function = model.value(closure).function if closure is not None else None
    if closure is None or function is None or call.has_star:
        return
    wrong = misfit(model, closure, function, given, first=0)
    if wrong is not None:
        yield model.problem(
            call.node,
            f"{snippet(model, closure)} {wrong} from args: TypeError when the step ends",
            suggestion="as many items in args as the function has parameters",
            related=[model.place(function.node, "defined here")],
        )


def _read(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The device tensor that an argument reads before the closure gets it."""
    if isinstance(node, cst.Call):
        call = model.call(node)
        tensor = call.receiver if call.method in _READS else None
        if call.name in _CASTS:
            tensor = call.argument(0)
        return tensor if tensor is not None and model.value(tensor).is_device_tensor else None
    if isinstance(node, cst.ConcatenatedString):  # f"step {step} " f"loss {loss}"
        return _read(model, node.left) or _read(model, node.right)
    if isinstance(node, cst.FormattedString):
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                tensor = part.expression
                found = tensor if model.value(tensor).is_device_tensor else _read(model, tensor)
                if found is not None:
                    return found
    return None


def _read_too_early(
    model: FileModel, node: cst.BaseExpression, tensor: cst.BaseExpression
) -> Problem:
    return model.problem(
        node,
        f"{snippet(model, tensor)} is read here, before the step has run, and not in the closure: "
        "the host waits and the graph is cut",
        suggestion="pass the tensor (args=(loss.detach(),)) and call .item() in the closure",
    )


def _captures(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """Names of the loop that a closure which runs beside it takes from the loop, not from args."""
    loop = model.loop(call.node)
    closure = call.argument(0, "closure")
    if loop is None or closure is None:
        return
    function = model.value(closure).function
    if function is None or function.outer is not call.function:
        return
    bound = set(_bound_in(loop.node))
    own = {*function.parameters, *function.keyword_only}
    for node in walk(function.node):
        if not isinstance(node, cst.Name) or node.value in own or node.value not in bound:
            continue
        parent = model.parent(node)
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is node:
            continue
        if model.value(node).is_device_tensor:
            yield model.problem(
                node,
                f"run_async=True runs this closure beside the loop: by then `{node.value}` may be "
                "the one of a later step",
                suggestion=f"pass it: args=({node.value}.detach(),)",
                related=[model.place(call.node, "the closure is added here")],
            )
            return


def _bound_in(loop: cst.CSTNode) -> Iterator[str]:
    for node in walk(loop, into_functions=False):
        if isinstance(node, cst.AssignTarget | cst.For):
            target = node.target
            yield from (part.value for part in walk(target) if isinstance(part, cst.Name))
