"""XLA202: ``x[mask]`` of a device tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet, why_on_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_MASKS = frozenset(
    {
        *("isnan", "isinf", "isfinite", "isclose", "bool"),
        *("eq", "ne", "gt", "ge", "lt", "le"),
        *("logical_and", "logical_or", "logical_not", "logical_xor"),
    }
)
_DEEPEST = 3


@rule("XLA202")
def boolean_mask_read(model: FileModel) -> Iterator[Problem]:
    """Find reads of a device tensor through a boolean mask in hot loops."""
    for node in walk(model.tree.module):
        if not isinstance(node, cst.Subscript) or _is_target(model, node):
            continue
        mask = _mask(model, node)
        if mask is None or not model.value(node.value).is_device_tensor:
            continue
        loop = costly_loop(model, node)
        if loop is None:
            continue
        yield model.problem(
            node,
            f"how many elements {snippet(model, node)} has depends on the data: the mask is read "
            "on "
            f"the host {often(loop)}, and every new count compiles everything after it again",
            suggestion="torch.where(mask, x, 0) keeps the shape; for a mean divide by mask.sum(); "
            "for ignored labels use ignore_index=",
            related=[
                loop_place(model, loop),
                *why_on_device(model, model.value(node.value), loop),
            ],
        )


def _is_target(model: FileModel, node: cst.Subscript) -> bool:
    """``x[mask] = 0`` is a write, another matter (it has masked_fill for a cure)."""
    parent = model.parent(node)
    if isinstance(parent, cst.AugAssign):
        return parent.target is node
    return isinstance(parent, cst.AssignTarget | cst.AnnAssign | cst.Del)


def _mask(model: FileModel, node: cst.Subscript) -> cst.BaseExpression | None:
    for element in node.slice:
        index = element.slice
        if isinstance(index, cst.Index) and _is_mask(model, index.value):
            return index.value
    return None


def _is_mask(model: FileModel, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression is certainly a tensor of booleans."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.Comparison):
        operators = [target.operator for target in node.comparisons]
        if any(isinstance(op, cst.Is | cst.IsNot | cst.In | cst.NotIn) for op in operators):
            return False
        sides = [node.left, *(target.comparator for target in node.comparisons)]
        return any(model.value(side).is_device_tensor for side in sides)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return _is_mask(model, node.expression, depth + 1)
    if isinstance(node, cst.BinaryOperation) and isinstance(
        node.operator, cst.BitAnd | cst.BitOr | cst.BitXor
    ):
        return _is_mask(model, node.left, depth + 1) or _is_mask(model, node.right, depth + 1)
    if isinstance(node, cst.Call):
        return _call_makes_mask(model, node)
    if isinstance(node, cst.Name):
        bindings = model.bindings(node.value, node)
        return bool(bindings) and all(
            item.kind == "assign"
            and isinstance(item.node, cst.BaseExpression)
            and _is_mask(model, item.node, depth + 1)
            for item in bindings
        )
    return False


def _call_makes_mask(model: FileModel, node: cst.Call) -> bool:
    call = model.call(node)
    if call.name is not None:
        return call.name.startswith("torch.") and call.name.removeprefix("torch.") in _MASKS
    if call.receiver is None or not model.value(call.receiver).is_device_tensor:
        return False
    if call.method == "to":
        target = call.argument(0, "dtype")
        return target is not None and model.name(target) == "torch.bool"
    return call.method in _MASKS
