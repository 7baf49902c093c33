"""Places that come round again: ``losses[step % 100]`` is a hundred graphs, ``x[step % 2]`` two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._settled import settled
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel

#: From so many places on each being a graph of its own is worth a word.
_MANY = 16
#: Words of the few turns after which an optimizer steps.
_FEW = frozenset({"accum", "accumulate", "accumulation", "micro", "grad", "gradient"})


def counted(model: FileModel, node: cst.CSTNode, number: cst.BaseExpression) -> cst.BaseExpression:
    """``step`` of the index ``step % size``, where the places are many; else the index itself.

    They are many if their number is known to be, or if the tensor was made with as many rows.

    Args:
        model: The file.
        node: The operation on a device tensor, which its graph holds the number in.
        number: The number, or a name of it.
    """
    made = number
    if isinstance(number, cst.Name):
        values = assigned(model, number)
        made = values[0] if len(values) == 1 else number
    if not isinstance(made, cst.BinaryOperation) or not isinstance(made.operator, cst.Modulo):
        return number
    sizes = settled(model, made.right)
    if sizes and all(isinstance(size, int) for size in sizes):
        return made.left if min(int(str(size)) for size in sizes) >= _MANY else number
    return made.left if _has_so_many_rows(model, node, made.right) else number


def _has_so_many_rows(model: FileModel, node: cst.CSTNode, size: cst.BaseExpression) -> bool:
    """``losses = torch.zeros(size, device=device)``, whose rows are written one after the other."""
    if not isinstance(node, cst.Subscript) or words(model.tree.text(size)) & _FEW:
        return False
    made = model.value(node.value).origin
    if not isinstance(made, cst.Call) or not model.is_here(made):
        return False
    rows = model.call(made).argument(0)
    if isinstance(rows, cst.Tuple | cst.List) and rows.elements:
        rows = rows.elements[0].value
    if rows is None:
        return False
    if _asks_rows(model, node, size):  # ``losses[step % len(losses)]``
        known = [one for one in settled(model, rows) or () if isinstance(one, int)]
        return min(known, default=_MANY) >= _MANY
    return model.tree.text(rows).strip() == model.tree.text(size).strip()


def _asks_rows(model: FileModel, node: cst.Subscript, size: cst.BaseExpression) -> bool:
    """``len(losses)``, ``losses.size(0)`` and ``losses.shape[0]`` of what the index is of."""
    held = model.tree.text(node.value).strip()
    asked = {f"len({held})", f"{held}.size(0)", f"{held}.shape[0]"}
    return model.tree.text(size).strip() in asked
