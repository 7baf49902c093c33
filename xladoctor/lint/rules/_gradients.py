"""Where gradients are not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.iterators import is_manager
from xladoctor.lint.model.without_gradients import NO_GRAD

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel


def in_no_grad(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node stands within ``with torch.no_grad():``, in its own function."""
    for around in model.tree.ancestors(node):
        if isinstance(around, cst.FunctionDef):
            return any(_is_no_grad(model, item.decorator) for item in around.decorators)
        if isinstance(around, cst.With) and any(
            _is_no_grad(model, item.item) for item in around.items
        ):
            return True
    return False


def _is_no_grad(model: FileModel, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call):
        return model.name(node) in NO_GRAD
    call = model.call(node)
    if call.name in NO_GRAD or not isinstance(call.target, Function):
        return call.name in NO_GRAD
    # ``with evaluating(net):`` of a function that yields under ``with torch.no_grad():``
    home = model.file_with(call.target.node)
    return is_manager(home.names, call.target) and any(
        in_no_grad(home, one) for one in home.within(call.target.node, cst.Yield)
    )
