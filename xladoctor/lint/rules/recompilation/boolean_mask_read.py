"""XLA202: ``x[mask]`` of a device tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.masked_mean import masked_mean_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._masks import is_of_device, is_on_host, mask_of
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet, why_on_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA202")
def boolean_mask_read(model: FileModel) -> Iterator[Problem]:
    """Find reads of a device tensor through a boolean mask in hot loops."""
    for node in model.nodes(cst.Subscript):
        if _is_target(model, node):
            continue
        mask = mask_of(model, node)
        if mask is None or not is_of_device(model, node, mask):
            continue
        loop = costly_loop(model, node)
        if loop is None:
            continue
        host = is_on_host(model, mask)
        read = "the mask is counted" if host else "the mask is read on the host"
        yield model.problem(
            node,
            f"how many elements {snippet(model, node)} has depends on the data: {read} "
            f"{often(loop)}, and every new count recompiles everything after it",
            suggestion=("move the mask to the device: " if host else "")
            + "torch.where(mask, x, 0) keeps the shape; for a mean divide by mask.sum(); "
            "for ignored labels use ignore_index=",
            related=[
                loop_place(model, loop),
                *why_on_device(model, model.value(node.value), loop),
            ],
            fix=None if host else masked_mean_fix(model, node),
        )


def _is_target(model: FileModel, node: cst.Subscript) -> bool:
    """``x[mask] = 0`` is a write, another matter (it has masked_fill for a cure)."""
    parent = model.parent(node)
    if isinstance(parent, cst.AugAssign):
        return parent.target is node
    return isinstance(parent, cst.AssignTarget | cst.AnnAssign | cst.Del)
