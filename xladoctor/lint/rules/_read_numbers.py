"""Python numbers that were read from the device: sizes and places that the data decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: What makes a number of a list.
_OF_LISTS = frozenset(f"builtins.{name}" for name in ("sum", "max", "min"))
#: What gives a number of numbers.
_ROUNDS = frozenset(f"builtins.{name}" for name in ("int", "round", "abs", "max", "min"))
#: Operations in each other.
_DEPTH = 5


def was_read(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a Python number was read from the device: ``n = mask.sum().item()``."""
    if isinstance(node, cst.BinaryOperation):
        return was_read(model, node.left) or was_read(model, node.right)
    made = list(made_of(model, node)) if isinstance(node, cst.Name) else []
    return bool(made) and all(_is_of_read(model, one) for one in made)


def _is_of_read(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """``ids.max().item() + 1``, also rounded, bounded, or on one side of a condition."""
    if depth == 0:
        return False
    if isinstance(node, cst.BinaryOperation):
        sides: tuple[cst.BaseExpression, ...] = (node.left, node.right)
    elif isinstance(node, cst.IfExp):
        sides = (node.body, node.orelse)
    elif not isinstance(node, cst.Call) or model.value(node).kind is not Kind.NUMBER:
        return False
    elif model.hot_loop(node) is not None and (
        model.effects.is_read(node) or _is_of_list(model, node)
    ):
        return True
    else:
        call = model.call(node)
        sides = tuple(call.positional) if call.name in _ROUNDS else ()
    return any(_is_of_read(model, side, depth - 1) for side in sides)


def was_listed(model: FileModel, node: cst.BaseExpression) -> bool:
    """``lengths.tolist()`` of a device tensor, also by a name."""
    made = made_of(model, node) if isinstance(node, cst.Name) else (node,)
    return any(
        isinstance(one, cst.Call)
        and model.call(one).method == "tolist"
        and (held := model.call(one).receiver) is not None
        and model.value(held).is_device_tensor
        for one in made
    )


def _is_of_list(model: FileModel, node: cst.Call) -> bool:
    """``sum(lengths.tolist())``, ``max(sizes)`` of such a list."""
    call = model.call(node)
    return (
        call.name in _OF_LISTS
        and len(call.positional) == 1
        and was_listed(model, call.positional[0])
    )


def made_of(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What is assigned to a name; also to a parameter that no caller gives (``longest=None``)."""
    bindings = model.bindings(name.value, name)
    if all(binding.kind in {"assign", "param"} for binding in bindings):
        for binding in bindings:
            made = binding.node
            if isinstance(made, cst.BaseExpression) and not not_here(model, made):
                yield made
