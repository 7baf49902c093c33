"""What the rules about boolean masks share: is an index certainly a mask?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.devices import words
from xladoctor.lint.rules._exact import assigned

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

_MASKS = frozenset(
    {
        *("isnan", "isinf", "isfinite", "isclose", "bool"),
        *("eq", "ne", "gt", "ge", "lt", "le"),
        *("logical_and", "logical_or", "logical_not", "logical_xor"),
    }
)
_DEEPEST = 3


def mask_of(model: FileModel, node: cst.Subscript) -> cst.BaseExpression | None:
    """The part of an index that is certainly a mask on the device, or None."""
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
    if isinstance(node, cst.Name) and _is_mask_given(model, node):
        return True
    if isinstance(node, cst.Name):
        values = assigned(model, node)
        return bool(values) and all(_is_mask(model, value, depth + 1) for value in values)
    return False


def _is_mask_given(model: FileModel, name: cst.Name) -> bool:
    """Whether a parameter is called a mask, and is a tensor of the device."""
    bindings = model.bindings(name.value, name)
    given = bool(bindings) and all(item.kind == "param" for item in bindings)
    return given and "mask" in words(name.value) and model.value(name).is_device_tensor


def _call_makes_mask(model: FileModel, node: cst.Call) -> bool:
    call = model.call(node)
    if call.name in {"torch.all", "torch.any"}:
        return call.argument(1, "dim") is not None  # one answer for each row
    if call.name is not None:
        return call.name.startswith("torch.") and call.name.removeprefix("torch.") in _MASKS
    if call.receiver is None or not model.value(call.receiver).is_device_tensor:
        return False
    if call.method == "to":
        target = call.argument(0, "dtype")
        return target is not None and model.name(target) == "torch.bool"
    if call.method in {"all", "any"}:
        return call.argument(0, "dim") is not None
    return call.method in _MASKS
