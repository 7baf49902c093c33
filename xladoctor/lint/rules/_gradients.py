"""Where gradients are not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

#: Contexts in which nothing that is computed keeps a history.
_NO_GRAD = frozenset(
    f"torch.{home}{name}"
    for home in ("", "autograd.", "autograd.grad_mode.")
    for name in ("no_grad", "inference_mode")
)


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
    return model.name(node.func if isinstance(node, cst.Call) else node) in _NO_GRAD
