"""XLA438: a scaled reduction of integers, which is 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Problem

_REDUCE = {
    "torch_xla.core.xla_model.all_reduce": (1, "inputs", 2),
    "torch_xla.core.functions.all_reduce": (1, "value", 2),
    "torch_xla.core.xla_model.reduce_scatter": (1, "input", 2),
}
_INTEGERS = frozenset({"torch.int", "torch.int32", "torch.int64", "torch.long", "torch.uint8"})


@rule("XLA438")
def scaled_integers(model: FileModel) -> Iterator[Problem]:
    """Find reductions of integer tensors with a scale that is no whole number."""
    for call in model.calls(*_REDUCE):
        assert call.name is not None
        position, keyword, at = _REDUCE[call.name]
        tensor, scale = call.argument(position, keyword), call.argument(at, "scale")
        if tensor is None or scale is None or not _divides(the_source(model, scale)):
            continue
        made = _integers(model, tensor)
        if made is None:
            continue
        yield model.problem(
            call.node,
            "the scale takes the type of the tensor, and a fraction is 0 as an integer: so is the "
            "result",
            suggestion="reduce tensor.float()",
            related=[model.place(made, "integers")],
            fix=_fix(model, tensor),
        )


def _divides(scale: cst.BaseExpression) -> bool:
    """``1.0 / world_size`` or a literal below 1."""
    if isinstance(scale, cst.BinaryOperation):
        return isinstance(scale.operator, cst.Divide)
    return isinstance(scale, cst.Float) and not float(scale.value).is_integer()


def _integers(model: FileModel, tensor: cst.BaseExpression) -> cst.BaseExpression | None:
    """The expression that makes a tensor of integers; None if that is not seen."""
    if isinstance(tensor, cst.Name):
        tensor = the_source(model, tensor)
    while isinstance(tensor, cst.Call) and isinstance(tensor.func, cst.Attribute):
        name = model.name(tensor.func) or ""
        keywords = {one.keyword.value: one.value for one in tensor.args if one.keyword is not None}
        if name in ("torch.tensor", "torch.zeros", "torch.ones", "torch.full"):
            dtype = keywords.get("dtype")
            if dtype is not None:
                return tensor if model.name(dtype) in _INTEGERS else None
            first = model.literal(tensor.args[0].value) if tensor.args else None
            first = first[0] if isinstance(first, list) and first else first
            whole = isinstance(first, int) and not isinstance(first, bool)
            return tensor if name == "torch.tensor" and whole else None
        if name:
            return None
        method = tensor.func.attr.value
        if method in ("long", "int", "argmax"):
            return tensor
        if method not in ("to", "sum", "detach", "clone"):
            return None
        tensor = tensor.func.value
    return None


def _fix(model: FileModel, tensor: cst.BaseExpression) -> Fix | None:
    if not isinstance(tensor, (cst.Name, cst.Call, cst.Attribute)):
        return None
    written = f"{model.tree.text(tensor).strip()}.float()"
    return model.fix("Reduce as float", model.replace(tensor, written), safe=False)
