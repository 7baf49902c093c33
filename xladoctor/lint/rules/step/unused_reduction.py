"""XLA308: ``xm.all_reduce`` of one tensor gives the result back, and nobody takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Attributes of parameters and layers that are tensors.
_TENSORS = frozenset({"bias", "data", "grad", "running_mean", "running_var", "weight"})
_REDUCE = "torch_xla.core.xla_model.all_reduce"


@rule("XLA308")
def unused_reduction(model: FileModel) -> Iterator[Problem]:
    """Find reductions of a single tensor whose result is dropped."""
    for call in model.calls(_REDUCE):
        tensor = call.argument(1, "inputs")
        if not isinstance(model.parent(call.node), cst.Expr) or tensor is None:
            continue
        if not model.value(tensor).is_device_tensor and not _is_tensor(tensor):
            continue  # a list is reduced in place
        fix = None
        if isinstance(tensor, cst.Name):
            written = f"{tensor.value} = {model.tree.text(call.node).strip()}"
            fix = model.fix("Take the result", model.replace(call.node, written), safe=True)
        yield model.problem(
            call.node,
            f"xm.all_reduce does not change {snippet(model, tensor)}: it returns the result, which "
            "is dropped here (only a list is reduced in place)",
            suggestion="tensor = xm.all_reduce(op, tensor)",
            fix=fix,
        )


def _is_tensor(node: cst.BaseExpression) -> bool:
    """``parameter.grad``, ``layer.running_mean``: one tensor, whatever holds it."""
    return isinstance(node, cst.Attribute) and node.attr.value in _TENSORS
