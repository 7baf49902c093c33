"""XLA108: a 0-d device tensor used as an index becomes a Python number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned, bounds, indices, made_by
from xladoctor.lint.rules._reads import loop_place, often, snippet, waiting_loop, why_on_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.taken import Taken

#: Without ``dim`` the result of these has no dimensions.
_REDUCTIONS = frozenset({"argmax", "argmin", "sum", "max", "min"})
#: A number stays one in these.
_KEEPS_SCALAR = frozenset({"long", "int", "type", "to", "detach"})


@rule("XLA108")
def index_by_device_scalar(model: FileModel) -> Iterator[Problem]:
    """Find ``x[t]`` and ``x[:t]`` where ``t`` is certainly a device tensor without dimensions."""
    for node in model.nodes(cst.Subscript):
        index = next((part for part in bounds(node) if _is_bound(model, part)), None)
        if index is None and model.value(node.value).is_device_tensor:
            index = next((part for part in indices(node) if _is_scalar(model, part)), None)
        listed = index is None and _is_list(model, node.value)
        if listed:
            index = next((part for part in indices(node) if _is_bound(model, part)), None)
        elif index is None and _is_of_host(model, node.value):
            index = next((part for part in indices(node) if _is_of_turns(model, part)), None)
            listed = index is not None
        loop = waiting_loop(model, node) if index is not None else None
        if index is None or loop is None:
            continue
        compiles = "" if listed else ", and every new value recompiles"
        yield model.problem(
            node,
            f"the index {snippet(model, index)} becomes a Python number: it is read on the host "
            f"{often(loop)}{compiles}",
            suggestion=_advice(node, index, listed=listed),
            related=[loop_place(model, loop), *why_on_device(model, model.value(node.value), loop)],
        )


def _advice(node: cst.Subscript, index: cst.BaseExpression, *, listed: bool) -> str:
    if listed:
        return (
            "count on the device (torch.zeros(classes, device=x.device).index_add_(0, labels, "
            "hits)), or read all indices at once after the loop"
        )
    if any(index is part for part in bounds(node)):
        return (
            "keep the full length and mask what is beyond: torch.where(torch.arange(x.shape[0], "
            "device=x.device) < n, x, 0)"
        )
    return "x.index_select(0, index.view(1)).squeeze(0) keeps the index on the device"


def _is_bound(model: FileModel, node: cst.BaseExpression) -> bool:
    """The end of a slice is one number: a device tensor there has no dimensions, or it fails."""
    if isinstance(node, cst.UnaryOperation):  # ``x[-length:]``
        node = node.expression
    value = model.value(node)
    written = cst.Name | cst.BinaryOperation | cst.Subscript
    if not isinstance(node, written) or not value.is_device_tensor:
        return False
    # What a call of the program made is one on this road; a batch's part may be a number after all.
    made = isinstance(value.origin, cst.Call) and not value.roads
    return value.certain or made or _is_computed(model, node)


def _is_computed(model: FileModel, node: cst.BaseExpression) -> bool:
    """``lengths[i]`` of ``lengths = mask.sum(1)``, whatever ``mask`` is."""
    base = node.value if isinstance(node, cst.Subscript) else node
    made = assigned(model, base) if isinstance(base, cst.Name) else []
    calls = [model.call(one) for one in made if isinstance(one, cst.Call)]
    return (
        bool(made)
        and len(calls) == len(made)
        and all(
            call.method in _REDUCTIONS and model.value(call.node).is_device_tensor for call in calls
        )
    )


def _is_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is a list or tuple of Python's, which takes one number as an index."""
    made = assigned(model, node) if isinstance(node, cst.Name) else [node]
    return bool(made) and all(_makes_list(model, one) for one in made)


def _is_of_host(model: FileModel, node: cst.BaseExpression) -> bool:
    """An array of NumPy, or a tensor of the host."""
    value = model.value(node)
    return value.kind in {Kind.ARRAY, Kind.CPU_TENSOR} and not value.roads


def _is_of_turns(model: FileModel, node: cst.BaseExpression) -> bool:
    """``t.long()`` of ``for t, p in zip(labels.view(-1), guesses.view(-1)):`` on the device.

    And ``labels[i]`` of ``for i in range(len(labels)):``, also by a name.
    """
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.method not in _KEEPS_SCALAR or call.receiver is None:
            return False
        return _is_of_turns(model, call.receiver)
    if not model.value(node).is_device_tensor:
        return False
    if not isinstance(node, cst.Name):
        return _is_turn(model, node)
    bound = [one.node for one in model.bindings(node.value, node)]
    return bool(bound) and all(_turn_of(model, one) or _is_turn(model, one) for one in bound)


def _is_turn(model: FileModel, node: cst.CSTNode) -> bool:
    """``labels[i]`` of ``for i in range(len(labels)):`` or ``for i, p in enumerate(guesses):``."""
    if isinstance(node, cst.Call):
        call = model.call(node)
        inner = call.receiver if call.method in _KEEPS_SCALAR else None
        return inner is not None and _is_turn(model, inner)
    part = [*indices(node)] if isinstance(node, cst.Subscript) else []
    if len(part) != 1 or not isinstance(part[0], cst.Name):
        return False
    bound = [one.node for one in model.bindings(part[0].value, part[0])]
    return bool(bound) and all(_is_counter(model, one) for one in bound)


def _is_counter(model: FileModel, node: cst.CSTNode) -> bool:
    """``i`` of ``for i in range(n)``, and of ``for i, x in enumerate(xs)``."""
    part = _turn_of(model, node)
    if part is None or not isinstance(part.value, cst.Call) or any(part.places):
        return False
    counts = "builtins.enumerate" if part.places else "builtins.range"
    return model.name(part.value.func) == counts


def _turn_of(model: FileModel, node: cst.CSTNode) -> Taken | None:
    """``t`` and ``p`` of ``for t, p in ...``."""
    part = model.taken(node)
    return None if part is None or isinstance(part.line, cst.Assign) else part


def _makes_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """``[0] * 10``, ``list(0. for _ in range(10))``, ``("cat", "dog")``."""
    if isinstance(node, cst.BinaryOperation):
        return _makes_list(model, node.left) or _makes_list(model, node.right)
    if isinstance(node, cst.Call):
        return model.call(node).name in {"builtins.list", "builtins.tuple"}
    return isinstance(node, cst.List | cst.Tuple | cst.ListComp)


def _is_scalar(model: FileModel, node: cst.BaseExpression) -> bool:
    call = made_by(model, node)
    if call is None or not model.value(node).is_device_tensor or call.has_star:
        return False
    if call.name is not None:
        module, _, name = call.name.rpartition(".")
        return module == "torch" and name in _REDUCTIONS and len(call.node.args) == 1
    return call.method in _REDUCTIONS and not call.node.args
