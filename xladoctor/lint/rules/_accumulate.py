"""The fix of ``total += loss.item()``: add up on the device, read once after the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.findings import Edit, Position
from xladoctor.lint.model import walk
from xladoctor.lint.rules._closures import shown_as_number
from xladoctor.lint.rules._moves import line_of

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Loop

_ATOMS = cst.Name | cst.Attribute | cst.Call | cst.Subscript
#: Methods whose result holds truth values, so that their sum counts.
_COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le", "isnan", "isinf"})


def accumulate_fix(
    model: FileModel,
    read: cst.Call,
    tensor: cst.BaseExpression,
    loop: Loop,
    number: str | None = None,
) -> Fix | None:
    """Add a tensor up on the device instead of reading it in every iteration.

    Args:
        model: The file.
        read: ``tensor.item()`` or ``float(tensor)``.
        tensor: What is read.
        loop: The loop over batches around it.
        number: "float" or "int", if the read says what it gives.

    Returns:
        None unless the read is a term or factor of ``total += ...`` directly in the loop, and the
        loop uses ``total`` only to show it, which a step closure can do next.
    """
    line = line_of(model, read)
    found = model.loop(read)
    if line is None or found is None or found.node is not loop.node:
        return None
    statement, outer = line.body[0], loop.node
    if not isinstance(outer, cst.For) or outer.orelse is not None:
        return None
    if not isinstance(statement, cst.AugAssign) or not isinstance(
        statement.operator, cst.AddAssign
    ):
        return None
    target = statement.target
    if not isinstance(target, cst.Name) or not _is_factor(statement.value, read):
        return None
    uses = [part for part in walk(outer) if isinstance(part, cst.Name)]
    others = [part for part in uses if part is not target and part.value == target.value]
    if not all(shown_as_number(model, part, loop) for part in others):
        return None
    if number == "int" and _number(model, tensor) != "int":
        return None  # int() cuts off what follows the point, in every iteration
    kind = number or _number(model, tensor)
    behind = _behind(model, outer, f"{target.value} = {kind}({target.value})")
    written = model.replace(read, _detached(model, tensor))
    return model.fix("Add up on the device, read once after the loop", written, behind, safe=False)


def _is_factor(value: cst.BaseExpression, read: cst.Call) -> bool:
    """``read``, ``read * n``, ``n * read`` or ``read / n``."""
    if value is read:
        return True
    if not isinstance(value, cst.BinaryOperation):
        return False
    if isinstance(value.operator, cst.Multiply):
        return value.left is read or value.right is read
    return isinstance(value.operator, cst.Divide) and value.left is read


def _number(model: FileModel, tensor: cst.BaseExpression) -> str:
    """What Python number ``item()`` gave: an int for the number of hits, else a float."""
    call = model.call(tensor) if isinstance(tensor, cst.Call) else None
    if call is None or call.method != "sum" or call.receiver is None:
        return "float"
    counted = call.receiver
    if isinstance(counted, cst.Call) and model.call(counted).method in _COMPARISONS:
        return "int"
    return "int" if isinstance(counted, cst.Comparison) else "float"


def _detached(model: FileModel, tensor: cst.BaseExpression) -> str:
    text = model.tree.text(tensor).strip()
    if isinstance(tensor, cst.Call) and model.call(tensor).method == "detach":
        return text
    bare = isinstance(tensor, _ATOMS) or text.startswith("(")
    return f"{text}.detach()" if bare else f"({text}).detach()"


def _behind(model: FileModel, loop: cst.For, statement: str) -> Edit | None:
    """Insert a statement behind a loop."""
    if not isinstance(loop.body, cst.IndentedBlock):
        return None
    start = model.tree.range(loop).start
    last = model.tree.range(loop.body.body[-1]).end.line
    lines = model.lines
    indent = lines[start.line - 1][: start.column]
    if indent.strip() or last >= len(lines):
        return None
    place = Position(last + 1, 1)
    return Edit(f"{indent}{statement}\n", place, place)
