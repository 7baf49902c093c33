"""XLA204: ``x[mask] = value`` on a device tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._masks import is_of_device, is_on_host, mask_of
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet, why_on_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Problem
from xladoctor.lint.model.taken import targets


@rule("XLA204")
def boolean_mask_write(model: FileModel) -> Iterator[Problem]:
    """Find writes into a device tensor through a boolean mask in hot loops."""
    for node in model.nodes(cst.Assign, cst.AugAssign):
        assert isinstance(node, cst.Assign | cst.AugAssign)
        for target in targets(node):
            mask = mask_of(model, target) if isinstance(target, cst.Subscript) else None
            if not isinstance(target, cst.Subscript) or mask is None:
                continue
            value = model.value(target.value)
            loop = costly_loop(model, node)
            if loop is None or not is_of_device(model, target, mask):
                continue
            yield model.problem(
                target,
                f"writing through the mask of {snippet(model, target)} looks for its true "
                f"elements on the host {often(loop)}, and every new number of them recompiles",
                suggestion=("move the mask to the device: " if is_on_host(model, mask) else "")
                + "x = x.masked_fill(mask, value) for a number, "
                "x = torch.where(mask, other, x) for a tensor",
                related=[loop_place(model, loop), *why_on_device(model, value, loop)],
                fix=_fix(model, node, target),
            )


def _fix(model: FileModel, node: cst.Assign | cst.AugAssign, target: cst.Subscript) -> Fix | None:
    """``x.masked_fill_(x < 0, 0)``: safe if the mask is made of ``x``, so that shapes agree."""
    mask = mask_of(model, target)
    if not isinstance(node, cst.Assign) or len(node.targets) != 1 or mask is None:
        return None
    if is_on_host(model, mask):
        return None
    number = model.literal(node.value)
    if isinstance(number, bool) or not isinstance(number, int | float) or len(target.slice) != 1:
        return None
    if not isinstance(target.value, cst.Name | cst.Attribute):
        return None
    own = isinstance(mask, cst.Comparison) and same_name(mask.left, target.value)
    name, written, value = (
        model.tree.text(part).strip() for part in (target.value, mask, node.value)
    )
    content = f"{name}.masked_fill_({written}, {value})"
    return model.fix("Fill through the mask", model.replace(node, content), safe=own)
