"""Numbers of Python that a graph holds as constants: another number is another graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import Kind, OnXla
from xladoctor.lint.rules._exact import indices

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

#: Functions of torch whose positional arguments are sizes.
_SIZED = frozenset(
    f"torch.{name}" for name in ("zeros", "ones", "empty", "rand", "randn", "arange")
)
#: Operations that compiled once per value of a number they were given (tables/ops.toml).
_TAKES_SIZE = frozenset(
    {
        *("torch.topk", "torch.roll", "torch.split", "torch.chunk", "torch.narrow", "torch.select"),
        *("torch.nn.functional.pad", "torch.nn.functional.threshold"),
        "torch.nn.functional.interpolate",
    }
)
_SIZE_METHODS = frozenset(
    {
        "topk",
        "roll",
        "repeat",
        "narrow",
        "select",
        "split",
        "chunk",
        "new_zeros",
        "new_ones",
        "new_empty",
    }
)


def graph_constants(
    model: FileModel, node: cst.CSTNode, *, likely: bool = False
) -> list[cst.BaseExpression]:
    """The numbers of an operation on a device tensor that its graph holds as constants.

    Measured: indices, sizes and exponents. Factors and terms are inputs of the graph.

    Args:
        model: The file.
        node: The operation.
        likely: Whether what is indexed need only be a device tensor in all likelihood.
    """
    if isinstance(node, cst.Subscript) and not isinstance(model.parent(node), cst.Del):
        on_device = _on_device(model, node.value) or (
            likely and model.value(node.value).is_device_tensor
        )
        return list(indices(node)) if on_device else []
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power):
        # TorchTPU takes exponents as inputs (ops_torch_tpu.toml).
        constant = not model.members or family.TORCH_XLA in model.members
        return [node.right] if constant and _on_device(model, node.left) else []
    if not isinstance(node, cst.Call):
        return []
    call = model.call(node)
    if call.name in _SIZED:
        return list(call.positional) if _on_device(model, node) else []
    if call.name in _TAKES_SIZE or (call.name is None and call.method in _SIZE_METHODS):
        tensor = call.argument(0) if call.name in _TAKES_SIZE else call.receiver
        maybe = tensor is not None and likely and model.value(tensor).is_device_tensor
        if tensor is None or not (maybe or _on_device(model, tensor)):
            return []
        given = [arg for arg in (*call.positional, *call.keywords.values()) if arg is not tensor]
        inner = [
            e.value for arg in given if isinstance(arg, cst.Tuple | cst.List) for e in arg.elements
        ]
        return [*given, *inner]
    return []


def _on_device(model: FileModel, node: cst.BaseExpression) -> bool:
    value = model.value(node)
    return value.is_device_tensor and (value.certain or _made_there(model, value.origin))


def _made_there(model: FileModel, made: cst.CSTNode | None) -> bool:
    """``torch.zeros(n, device=fabric.device)``: on the device of a library that runs on XLA."""
    if not isinstance(made, cst.Call) or not (model.call(made).name or "").startswith("torch."):
        return False
    device = model.call(made).keywords.get("device")
    if not isinstance(device, cst.Attribute) or device.attr.value != "device":
        return False
    return model.value(device).kind is Kind.DEVICE and model.on_xla(made) is not OnXla.NO
