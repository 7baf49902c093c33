"""Python numbers that were read from the device: sizes and places that the data decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import FileModel

_OF_TURNS = frozenset({"builtins.enumerate", "builtins.zip"})
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
    if isinstance(node, cst.Subscript):
        return _is_hot_list(model, node.value)
    if isinstance(node, cst.Name) and (_is_of_turn(model, node) or _out_of_list(model, node)):
        return True
    if not isinstance(node, cst.Name):
        return False
    made = [one for one in made_of(model, node) if not _is_of_itself(one, node.value)]
    return bool(made) and all(_is_of_read(model, one) for one in made)


def _is_of_itself(node: cst.BaseExpression, name: str) -> bool:
    """``at = (at + n) % size``: of what it was before."""
    return isinstance(node, cst.BinaryOperation) and any(
        is_name(side, name) or _is_of_itself(side, name) for side in (node.left, node.right)
    )


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


def _is_of_turn(model: FileModel, name: cst.Name) -> bool:
    """``for row, n in zip(rows, lengths.tolist())``: one of such a list in each turn."""
    found = [gone_over_by(model, one.node) for one in model.bindings(name.value, name)]
    return (
        bool(found)
        and all(one is not None and was_listed(model, one) for one in found)
        and model.value(name).kind is Kind.NUMBER
        and model.hot_loop(name) is not None
    )


def gone_over_by(model: FileModel, target: cst.CSTNode) -> cst.BaseExpression | None:
    """What the target of a loop, or a part of it, is taken from."""
    part = model.taken(target)
    if part is None or isinstance(part.line, cst.Assign):
        return None
    return _part(model, part.value, part.places)


def _part(
    model: FileModel, over: cst.BaseExpression, places: Sequence[int]
) -> cst.BaseExpression | None:
    """What of ``enumerate(zip(a, b))`` stands at a place of each turn."""
    if not isinstance(over, cst.Call):
        return None if places else over
    call = model.call(over)
    if call.has_star or not places:
        return None if places or call.name in _OF_TURNS else over
    if call.name == "builtins.enumerate" and places[0] == 1 and call.positional:
        return _part(model, call.positional[0], places[1:])
    if call.name == "builtins.zip" and places[0] < len(call.positional):
        return _part(model, call.positional[places[0]], places[1:])
    return None


def _out_of_list(model: FileModel, name: cst.Name) -> bool:
    """``for i, n in enumerate(lengths.tolist())``; also ``n = n.item()`` of a tensor's rows."""
    bindings = model.bindings(name.value, name)
    turned = [one.node for one in bindings if one.kind == "other"]
    rest = [one.node for one in bindings if one.kind != "other"]
    if not turned or any(one is None or not _turns(model, one, rest) for one in turned):
        return False
    return all(
        isinstance(one, cst.Call)
        and model.hot_loop(one) is not None
        and (model.effects.is_read(one) or _is_of_row(model, one, name.value))
        for one in rest
    )


def _is_of_row(model: FileModel, node: cst.Call, name: str) -> bool:
    """``int(n)`` of the row itself."""
    call = model.call(node)
    return call.name == "builtins.int" and any(is_name(one, name) for one in call.positional)


def _turns(model: FileModel, target: cst.CSTNode, rest: Sequence[cst.CSTNode | None]) -> bool:
    """Whether what a loop gives a name is of a list that was read, or a row that is read then."""
    over = gone_over_by(model, target)
    if over is None or model.hot_loop(over) is None:
        return False
    return _is_hot_list(model, over) or (bool(rest) and model.value(over).is_device_tensor)


def _is_hot_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """``lengths.tolist()``, ``lengths.cpu().numpy()`` of a device tensor in a step."""
    made = list(made_of(model, node)) if isinstance(node, cst.Name) else [node]
    return bool(made) and all(
        isinstance(one, cst.Call)
        and model.hot_loop(one) is not None
        and any(model.effects.is_read(part) for part in _chain(one))
        for one in made
    )


def _chain(call: cst.Call) -> Iterator[cst.Call]:
    """``x.cpu().numpy()``, and the ``x.cpu()`` of which it is asked."""
    yield call
    inner = call.func.value if isinstance(call.func, cst.Attribute) else None
    if isinstance(inner, cst.Call):
        yield from _chain(inner)


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
