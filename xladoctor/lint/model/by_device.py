"""Names that mean one function on each kind of device: ``wait = xm.mark_step``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import canonical, is_name
from xladoctor.lint.model.picked import newest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.syntax import Binding

#: Functions for devices that are there instead of XLA devices.
_FOR_GPUS = ("torch.cuda.", "torch.mps.", "torch.xpu.")


def on_xla(
    bindings: Sequence[Binding], spelled: Callable[[cst.BaseExpression], str | None]
) -> str | None:
    """The one function of torch_xla that a name means where there are XLA devices, if it is so.

    Beside it ``wait = torch.cuda.synchronize``, ``wait = lambda: None`` and ``def wait(): pass``,
    and ``wait = None`` of what is asked for before it is called. What newer releases call
    otherwise is one function too (``torch_xla.sync``, ``xm.mark_step``).

    Args:
        bindings: What the name is bound to.
        spelled: The dotted name of an expression.
    """
    found: set[str] = set()
    for item in bindings:
        named = item.node if isinstance(item.node, cst.Name | cst.Attribute) else None
        meaning = spelled(named) if named is not None and item.kind == "assign" else None
        if meaning is not None and meaning.startswith("torch_xla."):
            found.add(meaning)
        elif not (meaning or "").startswith(_FOR_GPUS) and not _does_nothing(item.node):
            return None
    if len(found) > 1:
        found = {newest(canonical(one)) for one in found}
    return found.pop() if len(found) == 1 else None


def _does_nothing(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Lambda):
        return is_name(node.body, "None")
    if isinstance(node, cst.Name):
        return node.value == "None"
    return isinstance(node, cst.FunctionDef) and all(
        isinstance(line, cst.SimpleStatementLine) and all(map(_is_nothing, line.body))
        for line in node.body.body
    )


def _is_nothing(line: cst.CSTNode) -> bool:
    """``pass``, ``return``, ``return None``, ``...`` and a docstring."""
    if isinstance(line, cst.Expr):
        return isinstance(line.value, cst.Ellipsis | cst.SimpleString)
    if isinstance(line, cst.Return):
        return line.value is None or is_name(line.value, "None")
    return isinstance(line, cst.Pass)
