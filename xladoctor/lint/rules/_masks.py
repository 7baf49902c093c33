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
#: Methods that leave a mask a mask.
_SAME = frozenset(
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "expand", "expand_as", "contiguous",
     "clone", "detach", "t", "transpose", "permute", "repeat"}
)  # fmt: skip
#: Functions that fill a new tensor, of the type that they are given.
_FILLED = frozenset({"zeros", "ones", "full", "empty", "tensor", "zeros_like", "ones_like"})


def _is_inverted(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether the same function asks for ``~done`` too: nobody inverts places."""
    if not model.value(node).is_device_tensor:
        return False
    text, function = model.tree.text(node).strip(), model.function_of(node)
    return any(
        isinstance(other.operator, cst.BitInvert)
        and model.function_of(other) is function
        and model.tree.text(other.expression).strip() == text
        for other in model.nodes(cst.UnaryOperation)
    )


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
        return _call_makes_mask(model, node) or _stays_mask(model, node, depth)
    if isinstance(node, cst.Name) and _is_mask_given(model, node):
        return True
    if isinstance(node, cst.Name | cst.Subscript | cst.Attribute) and _is_inverted(model, node):
        return True
    if isinstance(node, cst.Name):
        values = _assigned(model, node)
        return bool(values) and all(_is_mask(model, value, depth + 1) for value in values)
    if isinstance(node, cst.IfExp):
        return _is_mask(model, node.body, depth + 1) and _is_mask(model, node.orelse, depth + 1)
    return False


def _assigned(model: FileModel, node: cst.Name) -> list[cst.BaseExpression]:
    """What is assigned to a name; ``mask &= other`` leaves it a mask, if it was one."""
    joined = {
        binding.node
        for binding in model.bindings(node.value, node)
        if isinstance(model.parent(binding.node), cst.AugAssign) and _joins(model, binding.node)
    }
    if not joined:
        return assigned(model, node)
    bindings = [one for one in model.bindings(node.value, node) if one.node not in joined]
    plain = all(one.kind == "assign" for one in bindings)
    return [one.node for one in bindings if isinstance(one.node, cst.BaseExpression)] * plain


def _joins(model: FileModel, target: cst.CSTNode) -> bool:
    """Whether an assignment is one of ``&=``, ``|=`` and ``^=``."""
    parent = model.parent(target)
    return isinstance(parent, cst.AugAssign) and isinstance(
        parent.operator, cst.BitAndAssign | cst.BitOrAssign | cst.BitXorAssign
    )


def _is_mask_given(model: FileModel, name: cst.Name) -> bool:
    """Whether a parameter is called a mask, and is a tensor of the device."""
    bindings = model.bindings(name.value, name)
    given = bool(bindings) and all(item.kind == "param" for item in bindings)
    return given and "mask" in words(name.value) and model.value(name).is_device_tensor


def _stays_mask(model: FileModel, node: cst.Call, depth: int) -> bool:
    """``mask.view(-1)``, ``mask.to(device)``: a mask still."""
    call = model.call(node)
    if call.name is not None or call.receiver is None:
        return False
    moved = call.method == "to" and model.value(node).is_device_tensor
    types = [model.name(value) for value in (*call.positional, *call.keywords.values())]
    typed = any((name or "").startswith("torch.") for name in types)
    return (call.method in _SAME or (moved and not typed)) and _is_mask(
        model, call.receiver, depth + 1
    )


def _call_makes_mask(model: FileModel, node: cst.Call) -> bool:
    call = model.call(node)
    if call.name in {"torch.all", "torch.any"}:
        return call.argument(1, "dim") is not None  # one answer for each row
    dtype = call.keywords.get("dtype")
    if dtype is not None and model.name(dtype) in {"torch.bool", "builtins.bool"}:
        made = (call.name or "").removeprefix("torch.") in _FILLED
        return made and model.value(node).is_device_tensor
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
