"""What the rules about boolean masks share: is an index certainly a mask?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.booleans import TENSORS
from xladoctor.lint.model.values import Kind
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel


def mask_of(model: FileModel, node: cst.Subscript) -> cst.BaseExpression | None:
    """The part of an index that is certainly a mask, or None."""
    for element in node.slice:
        index = element.slice
        if isinstance(index, cst.Index) and _is_mask(model, index.value):
            return index.value
    return None


def is_of_device(model: FileModel, node: cst.Subscript, mask: cst.BaseExpression) -> bool:
    """Whether what a mask chooses from is on the device.

    Where nobody knows: a mask on the device chooses from nothing else.
    """
    value = model.value(node.value)
    return value.is_device_tensor or (
        value.kind is Kind.UNKNOWN and not value.roads and not is_on_host(model, mask)
    )


def is_on_host(model: FileModel, mask: cst.BaseExpression) -> bool:
    """Whether a mask is a tensor of the CPU or an array: no read, but another size each time."""
    return not model.value(mask).is_device_tensor


def _is_mask(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether an expression is certainly a tensor or an array of booleans."""
    value = model.value(node)
    if value.kind in TENSORS and value.boolean:
        return True
    named = isinstance(node, cst.Name) and _is_mask_given(model, node)
    return named or _is_inverted(model, node)


def _is_inverted(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether the same function asks for ``~done`` too: nobody inverts places."""
    if not isinstance(node, cst.Name | cst.Subscript | cst.Attribute | cst.UnaryOperation):
        return False
    if isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.BitInvert):
        return False
    if not model.value(node).is_device_tensor:
        return False
    asked = node.expression if isinstance(node, cst.UnaryOperation) else node
    text, function = model.tree.text(asked).strip(), model.function_of(node)
    return any(
        isinstance(other.operator, cst.BitInvert)
        and model.function_of(other) is function
        and model.tree.text(other.expression).strip() == text
        for other in model.nodes(cst.UnaryOperation)
    )


def _is_mask_given(model: FileModel, name: cst.Name) -> bool:
    """Whether a parameter is called a mask, and is a tensor of the device."""
    bindings = model.bindings(name.value, name)
    given = bool(bindings) and all(item.kind == "param" for item in bindings)
    return given and "mask" in words(name.value) and model.value(name).is_device_tensor
