"""The fix of an operation that XLA does not lower: an equal formula of lowered ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rewrites.moves import line_of
from xladoctor.lint.rules._constants import constant

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel

_HUBER = frozenset({"torch.nn.functional.huber_loss"})
_PLAIN = cst.Name | cst.Attribute


def equal_formula_fix(model: FileModel, call: CallSite) -> Fix | None:
    """``torch.bincount``, ``F.huber_loss`` and ``torch.isin`` as lowered operations."""
    if call.has_star:
        return None
    if call.name == "torch.bincount":
        return _bincount(model, call)
    if call.name in _HUBER:
        return _huber(model, call)
    if call.name == "torch.isin" and len(call.positional) == 2 and not call.keywords:
        text, values = (model.tree.text(item).strip() for item in call.positional)
        if all(isinstance(item, _PLAIN) for item in call.positional):
            written = f"({text}[..., None] == {values}.flatten()).any(-1)"
            return model.fix(
                "Compare with each value", model.replace(call.node, written), safe=False
            )
    return None


def _bincount(model: FileModel, call: CallSite) -> Fix | None:
    """Count by comparing: right if no value is ``minlength`` or more (bincount would grow)."""
    length = call.argument(2, "minlength")
    if length is None or len(call.node.args) != 2 or len(call.positional) > 1:
        return None
    if constant(model, length) is NotImplemented and not isinstance(length, cst.BinaryOperation):
        return None
    torch = model.spelled("torch", call.node)
    values = call.argument(0, "input")
    line = line_of(model, call.node)
    if torch is None or values is None or line is None:
        return None
    name, before = model.tree.text(values).strip(), []
    if not isinstance(values, cst.Name):
        name, text = "counted", name
        if "\n" in text or model.bindings(name, call.node):
            return None
        edit = model.insert_before(call.node, f"{name} = {text}")
        if edit is None:
            return None
        before.append(edit)
    count = model.tree.text(length).strip()
    written = f"({name}[:, None] == {torch}.arange({count}, device={name}.device)).sum(0)"
    return model.fix("Count by comparing", [*before], model.replace(call.node, written), safe=False)


def _huber(model: FileModel, call: CallSite) -> Fix | None:
    """``huber_loss(delta=d)`` is ``d * smooth_l1_loss(beta=d)``; with 1.0 they are the same."""
    func = call.node.func
    if not isinstance(func, cst.Attribute) or len(call.positional) > 2:
        return None
    delta = call.keywords.get("delta")
    if "weight" in call.keywords:
        return None
    renamed = model.replace(func.attr, "smooth_l1_loss")
    if delta is None:
        return model.fix("Use smooth_l1_loss", renamed, safe=True)
    value = model.literal(delta)
    argument = call.written_as(delta)
    if not isinstance(value, int | float) or value <= 0 or argument is None:
        return None
    text = model.tree.text(delta).strip()
    loss = model.tree.text(call.node).strip()
    if loss.count("delta") != 1 or loss.count("huber_loss") != 1:
        return None
    loss = loss.replace("huber_loss", "smooth_l1_loss").replace("delta", "beta")
    parent = model.parent(call.node)
    product = f"{text} * {loss}"
    if not isinstance(parent, cst.Assign | cst.AugAssign | cst.Return | cst.Arg):
        product = f"({product})"
    return model.fix("Use smooth_l1_loss", model.replace(call.node, product), safe=True)
