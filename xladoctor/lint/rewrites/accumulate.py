"""The fix of ``total += loss.item()``: add up on the device, read once after the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name, paired
from xladoctor.lint.rewrites.closures import shown_as_number
from xladoctor.lint.rewrites.moves import insert_behind, statement_in
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from xladoctor.findings import Edit, Fix
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
    where = statement_in(model, read, loop)
    if where is None:
        return None
    statement, outer = where
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
    if number == "int" and number_of(model, tensor) != "int":
        return None  # int() cuts off what follows the point, in every iteration
    kind = number or number_of(model, tensor)
    behind = insert_behind(model, outer, f"{target.value} = {kind}({target.value})")
    written = _left_there(model, read, tensor)
    start = _start(model, outer, target, kind)
    return model.fix(
        "Add up on the device, read once after the loop", written, behind, start, safe=False
    )


def _start(model: FileModel, loop: cst.For, target: cst.Name, number: str) -> list[Edit]:
    """Begin with a zero on the device, where ``total = 0.0`` stands and the device has a name.

    A Python zero works too, but makes the first step's graph another one than the later ones'.
    """
    zero = _zero_before(model, loop, target.value)
    torch = model.spelled("torch", loop)
    device = device_at(model, zero) if zero is not None else None
    if zero is None or torch is None or device is None:
        return []
    dtype = f"dtype={torch}.int64, " if number == "int" else ""
    edit = model.replace(zero, f"{torch}.zeros((), {dtype}device={device})")
    return [edit] if edit is not None else []


def _zero_before(model: FileModel, loop: cst.For, name: str) -> cst.BaseExpression | None:
    """The ``0`` of ``total = 0`` or ``total, n = 0, 0`` before the loop, in the same block."""
    found = None
    for line in getattr(model.parent(loop), "body", ()):
        if line is loop:
            break
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        statement = line.body[0]
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            continue
        for place, given in paired(statement.targets[0].target, statement.value):
            if is_name(place, name):
                found = given
    plain = isinstance(found, cst.Integer | cst.Float) and model.literal(found) == 0
    return found if plain else None


def device_at(model: FileModel, node: cst.CSTNode) -> str | None:
    """A name for the device that is bound once, before a node of the same function."""
    function = model.function_of(node)
    for name in model.names_in(function):
        if model.value(name).kind is not Kind.DEVICE or not in_order(model, name, node):
            continue
        if len(model.bindings(name.value, name)) == 1:
            return name.value
    if function is None:
        return None
    for index, parameter in enumerate(function.parameters):
        given = [call.argument(index, parameter) for call in model.callers(function)]
        if given and all(x is not None and model.value(x).kind is Kind.DEVICE for x in given):
            return parameter
    return None


def _is_factor(value: cst.BaseExpression, read: cst.Call) -> bool:
    """``read``, ``read * n``, ``n * read`` or ``read / n``."""
    if value is read:
        return True
    if not isinstance(value, cst.BinaryOperation):
        return False
    if isinstance(value.operator, cst.Multiply):
        return value.left is read or value.right is read
    return isinstance(value.operator, cst.Divide) and value.left is read


def number_of(model: FileModel, tensor: cst.BaseExpression) -> str:
    """What Python number ``item()`` gives: an int for the number of hits, else a float."""
    call = model.call(tensor) if isinstance(tensor, cst.Call) else None
    if call is None or call.method != "sum" or call.receiver is None:
        return "float"
    counted = call.receiver
    if isinstance(counted, cst.Call) and model.call(counted).method in _COMPARISONS:
        return "int"
    return "int" if isinstance(counted, cst.Comparison) else "float"


def _left_there(
    model: FileModel, read: cst.BaseExpression, tensor: cst.BaseExpression
) -> Edit | None:
    """``x.detach()`` for ``x.item()``, whatever lines ``x`` is written on."""
    func = read.func if isinstance(read, cst.Call) and not read.args else None
    if isinstance(func, cst.Attribute) and func.value is tensor and func.attr.value == "item":
        text = detached(model, tensor)
        if text.endswith(".detach()") and text != model.tree.text(tensor).strip():
            return model.replace(func.attr, "detach")
    return model.replace(read, detached(model, tensor))


def detached(model: FileModel, tensor: cst.BaseExpression) -> str:
    """The text of a tensor without its history."""
    text = model.tree.text(tensor).strip()
    if isinstance(tensor, cst.Call) and model.call(tensor).method == "detach":
        return text
    bare = isinstance(tensor, _ATOMS) or text.startswith("(")
    return f"{text}.detach()" if bare else f"({text}).detach()"
