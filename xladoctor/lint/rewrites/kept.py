"""The fix of ``losses.append(loss.item())``: keep the tensors, read all of them after the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rewrites.accumulate import detached, number_of
from xladoctor.lint.rewrites.moves import insert_behind, statement_in
from xladoctor.lint.rules._exact import has_one_name, in_order

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Loop


def kept_fix(
    model: FileModel,
    read: cst.Call,
    tensor: cst.BaseExpression,
    loop: Loop,
    number: str | None = None,
) -> Fix | None:
    """Append the tensor instead of a number, and make numbers of the list behind the loop.

    Args:
        model: The file.
        read: ``tensor.item()`` or ``float(tensor)``.
        tensor: What is read.
        loop: The loop over batches around it.
        number: "float" or "int", if the read says what it gives.

    Returns:
        None unless the list is empty when the loop begins, and the loop does nothing with it but
        append this one value.
    """
    where = statement_in(model, read, loop)
    if where is None:
        return None
    statement, outer = where
    if number is not None and number != number_of(model, tensor):
        return None  # float() of a count and int() of a mean are other numbers than the tensor's
    call = statement.value if isinstance(statement, cst.Expr) else None
    site = model.call(call) if isinstance(call, cst.Call) else None
    if site is None or site.method != "append" or site.positional != (read,):
        return None
    kept = site.receiver
    if not isinstance(kept, cst.Name) or not _empty_before(model, kept, outer):
        return None
    uses = [x for x in walk(outer) if is_name(x, kept.value)]
    torch = model.spelled("torch", outer)
    if uses != [kept] or torch is None:
        return None
    name = kept.value
    numbers = f"{name} = {torch}.stack({name}).flatten().tolist() if {name} else []"
    return model.fix(
        "Keep the tensors, read them after the loop",
        model.replace(read, detached(model, tensor)),
        insert_behind(model, outer, numbers),
        safe=False,
    )


def _empty_before(model: FileModel, kept: cst.Name, loop: cst.For) -> bool:
    """Whether a name is bound once, to ``[]``, before a loop and as often as the loop is run."""
    made = model.assigned_once(kept)
    if not isinstance(made, cst.List) or made.elements or not has_one_name(model, made):
        return False
    outside, there = model.loop(loop), model.loop(made)
    same_turn = (outside and outside.node) is (there and there.node)
    return (
        same_turn
        and model.function_of(made) is model.function_of(loop)
        and in_order(model, made, loop)
    )
