"""Which values are models that ``XlaFullyShardedDataParallel`` shares out over the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

_WRAPPER = "XlaFullyShardedDataParallel"


def sharded_at(model: FileModel, node: cst.BaseExpression) -> cst.CSTNode | None:
    """Where a model was sharded.

    Args:
        model: The file.
        node: An expression: the call of the wrapper, or a name or attribute that is given one.

    Returns:
        The call of the wrapper; None for what is not sharded, or not known to be.
    """
    if isinstance(node, cst.Call):
        name = model.name(node.func) or ""
        sharded = name.startswith("torch_xla.distributed.fsdp") and name.endswith(_WRAPPER)
        return node if sharded else None
    if isinstance(node, cst.Name):
        given = [*model.assigned_to(node)]
        if model.is_parameter(node):
            given += sources(model, node) or []
    elif isinstance(node, cst.Attribute):
        given = [*model.assigned.get(dotted_text(node) or "", ())]
    else:
        return None
    calls = (sharded_at(model, one) for one in given if isinstance(one, cst.Call))
    return next((call for call in calls if call is not None), None)


def asked(node: cst.CSTNode, method: str) -> cst.BaseExpression | None:
    """``model`` of ``model.parameters()``, None for anything else.

    Args:
        node: The expression.
        method: Name of the method, called without arguments.
    """
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == method
    ):
        return node.func.value
    return None
