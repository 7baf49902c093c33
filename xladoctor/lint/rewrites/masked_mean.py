"""The fix of ``F.l1_loss(x[mask], y[mask])``: the same mean with fixed shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.parts import index_of

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel

#: Losses of two tensors of one shape, element by element, that are averaged by default.
_LOSSES = tuple(
    f"torch.nn.functional.{name}"
    for name in (
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "l1_loss",
        "mse_loss",
        "smooth_l1_loss",
    )
)


def masked_mean_fix(model: FileModel, read: cst.Subscript) -> Fix | None:
    """Average a loss over all elements of a mask with ``torch.where``.

    None unless both tensors are read through the same plain name, which is bound once to a
    comparison of one of the two (so that its shape is theirs).
    """
    argument = model.parent(read)
    call = model.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call) or model.call(call).name not in _LOSSES:
        return None
    torch = model.spelled("torch", call)
    if torch is None or len(call.args) != 2 or any(arg.keyword or arg.star for arg in call.args):
        return None
    pairs = [_masked(arg.value) for arg in call.args]
    masks = {pair[1].value for pair in pairs if pair is not None}
    if None in pairs or len(masks) != 1:
        return None
    tensors = [pair[0].value for pair in pairs if pair is not None]
    mask = next(pair[1] for pair in pairs if pair is not None)
    made = model.assigned_once(mask)
    if not isinstance(made, cst.Comparison) or not isinstance(made.left, cst.Name):
        return None
    if made.left.value not in tensors:
        return None
    each = f'{model.tree.text(call.func).strip()}({", ".join(tensors)}, reduction="none")'
    name = mask.value
    written = f"{torch}.where({name}, {each}, 0.0).sum() / {name}.sum()"
    parent = model.parent(call)
    if not isinstance(parent, cst.Assign | cst.AugAssign | cst.Return | cst.Arg):
        written = f"({written})"
    return model.fix("Average with fixed shapes", model.replace(call, written), safe=False)


def _masked(node: cst.BaseExpression) -> tuple[cst.Name, cst.Name] | None:
    """``x`` and ``mask`` of ``x[mask]``, if both are plain names."""
    if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Name):
        return None
    mask = index_of(node)
    return (node.value, mask) if isinstance(mask, cst.Name) else None
