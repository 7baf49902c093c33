"""Tensors of the host that are computed of nothing but constants: masks, grids, windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._fixed import assigned, is_of_shape, is_setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

#: Factories whose numbers are the same each time.
_FACTORIES = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "full", "arange", "eye", "linspace")
)
#: What makes an array of a list.
_ARRAYS = frozenset({"numpy.array", "numpy.asarray"})
#: Names and calls on the way to the factories.
_DEPTH = 8


def computed_of_constants(model: FileModel, node: cst.BaseExpression) -> cst.Call | None:
    """The factory at the bottom of ``torch.exp(-grid ** 2)``, if only such ones are there.

    Args:
        model: The file.
        node: What is moved; a factory's own call is no computation.
    """
    if model.value(node).kind is not Kind.CPU_TENSOR:
        return None
    found: list[cst.Call] = []
    if not _is_constant(model, node, found, _DEPTH) or not found or found[0] is node:
        return None
    return found[0]


def _is_constant(
    model: FileModel, node: cst.BaseExpression, found: list[cst.Call], depth: int
) -> bool:
    if depth == 0:
        return False
    if isinstance(node, cst.Call) and model.call(node).name in _FACTORIES:
        call = model.call(node)
        device = call.keywords.get("device")
        if call.has_star or (device is not None and model.literal(device) != "cpu"):
            return False
        found.append(node)
        return True
    if isinstance(node, cst.BaseNumber | cst.SimpleString):
        return True
    if model.value(node).kind is Kind.NUMBER:
        return not isinstance(node, cst.Call) or is_of_shape(model.call(node))
    if isinstance(node, cst.Attribute) and is_setting(node):
        return True
    parts = list(_parts(model, node))
    return bool(parts) and all(_is_constant(model, part, found, depth - 1) for part in parts)


def _parts(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression is computed of; nothing where that is not known."""
    if isinstance(node, cst.UnaryOperation):
        yield node.expression
    elif isinstance(node, cst.BinaryOperation):
        yield from (node.left, node.right)
    elif isinstance(node, cst.Name):
        for binding in model.bindings(node.value, node):
            made = assigned(model, binding.node) if binding.kind in {"assign", "other"} else None
            yield made if made is not None else node  # a way round that ends at the depth
    elif isinstance(node, cst.Call):
        call = model.call(node)
        if (call.name or "").startswith("torch.") or (call.name is None and call.receiver):
            if call.name is None and call.receiver is not None:
                yield call.receiver
            yield from (item.value for item in node.args)


def same_numbers(model: FileModel, data: cst.BaseExpression) -> bool:
    """Whether data is a list of the same numbers each time: written, or kept by the constructor.

    ``[0.485, 0.456, 0.406]``, a name of such a list, an array of it, and ``self.mean`` that only
    ``__init__`` sets, to a list.
    """
    if isinstance(data, cst.Call) and model.name(data.func) in _ARRAYS and data.args:
        data = data.args[0].value
    if isinstance(data, cst.List | cst.Tuple):
        return bool(data.elements) and model.literal(data) is not NotImplemented
    if isinstance(data, cst.Name):
        written = model.literal(data)
        return isinstance(written, list | tuple) and bool(written)
    if not isinstance(data, cst.Attribute) or not isinstance(data.value, cst.Name):
        return False
    home = model.function_of(data)
    owner = home.owner if home is not None else None
    if owner is None or home is None or data.value.value != next(iter(home.parameters), None):
        return False
    given = model.kept(owner).get(data.attr.value, ())
    functions = {model.function_of(node) for node in given}
    made = [function is not None and function.name == "__init__" for function in functions]
    return bool(made) and all(made) and all(_is_list(model, node) for node in given)


def _is_list(model: FileModel, node: cst.BaseExpression) -> bool:
    """A list that is written, or a setting whose name speaks of several: ``token_ids``."""
    if isinstance(node, cst.List | cst.Tuple):
        return model.literal(node) is not NotImplemented
    return (
        isinstance(node, cst.Name)
        and node.value.endswith("s")
        and model.value(node).kind in {Kind.UNKNOWN, Kind.CONTAINER}
        and not model.value(node).holds_device_tensor
        and any(item.kind == "param" for item in model.bindings(node.value, node))
    )
