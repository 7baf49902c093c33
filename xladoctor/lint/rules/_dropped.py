"""Whether a loop drops what each turn has computed, so that nothing of it waits in the graph.

A tensor whose last name is gone is never computed: ``out = net(batch)`` of a loop that measures
speed leaves the last batch's work behind, and no other's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import assignments
from xladoctor.lint.model.parts import each_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel

_PURE = ("torch.", "torch_xla.", "builtins.", "time.")


def drops_all(model: FileModel, loop: cst.CSTNode) -> bool:
    """Whether all that a loop computes on the device has a plain name, bound anew in each turn.

    Only where all of it is in sight: not where an object keeps it, a list takes it, a function is
    given it, or a turn goes on with what the last one has left.
    """
    if not isinstance(loop, cst.For):
        return False
    bound: dict[str, int] = {}
    read: dict[str, int] = {}
    order = model.tree.order
    for part in walk(loop.body, into_functions=False):
        if isinstance(part, cst.Yield) or (isinstance(part, cst.Call) and _keeps(model, part)):
            return False
        if isinstance(part, cst.AugAssign | cst.NamedExpr) and _on_device(model, part.value):
            return False
        for target, value in assignments(part):
            if not _on_device(model, value):
                continue
            used = {node.value for node in walk(value) if isinstance(node, cst.Name)}
            for one in each_in(target):
                if not isinstance(one, cst.Name) or one.value in used:
                    return False  # ``total = total + loss``
                bound.setdefault(one.value, order[part])
        if isinstance(part, cst.Name) and not isinstance(model.parent(part), cst.AssignTarget):
            read.setdefault(part.value, order[part])
    made_first = all(made < read.get(name, made + 1) for name, made in bound.items())
    return bool(bound) and made_first and not _is_stored(model, loop)


def _is_stored(model: FileModel, loop: cst.For) -> bool:
    """Whether what the loop runs keeps tensors in an object: a queue, a running mean."""
    here = model.function_of(loop)
    ran = dict.fromkeys(call.function for call in model.reached(loop))
    bodies = (one.node.body for one in ran if one is not None and one is not here)
    lines = (part for body in bodies for part in walk(body, into_functions=False))
    return any(
        _on_device(model, value) and any(not isinstance(x, cst.Name) for x in each_in(target))
        for line in lines
        for target, value in _given(line)
    )


def _given(
    line: cst.CSTNode,
) -> Iterator[tuple[cst.BaseAssignTargetExpression, cst.BaseExpression]]:
    """What a line assigns or adds to, each with the value."""
    yield from assignments(line)
    if isinstance(line, cst.AugAssign):
        yield line.target, line.value


def _keeps(model: FileModel, node: cst.Call) -> bool:
    """Whether a call may keep what it is given of the device, for all that is known."""
    call = model.call(node)
    given = [*call.positional, *call.keywords.values()]
    if not call.has_star and not any(_of_device(model, one) for one in given):
        return False
    if call.name is not None:
        return not call.name.startswith(_PURE)
    if model.value(node.func).kind in {Kind.MODEL, Kind.LOSS}:
        return False
    return call.receiver is None or not model.value(call.receiver).is_device_tensor


def _of_device(model: FileModel, node: cst.BaseExpression) -> bool:
    """Also a model: ``self.prediction_step(model, inputs)``."""
    return _on_device(model, node) or model.value(node).kind is Kind.MODEL


def _on_device(model: FileModel, node: cst.BaseExpression) -> bool:
    value = model.value(node)
    return value.holds_device_tensor or value.is_device_tensor
