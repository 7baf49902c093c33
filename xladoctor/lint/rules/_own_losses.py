"""Losses of a core's own batch, which each core asks for itself whether they are numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules._together import brings_together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard

#: Questions whether a loss is a number.
_ASKS = frozenset({"isnan", "isinf", "isfinite"})


def own_loss(model: FileModel, guard: Guard) -> CallSite | None:
    """The question by which a condition asks a loss of this core's own batch.

    ``if torch.isnan(loss): continue`` before ``loss.backward()``: gradients are reduced behind it,
    and nothing reduces the loss.
    """
    if any(isinstance(one, cst.Call) and _is_reduced(model, one) for one in walk(guard.test)):
        return None
    for part in walk(guard.test):
        asked = model.call(part) if isinstance(part, cst.Call) else None
        if asked is None or asked.last not in _ASKS:
            continue
        loop = model.step_loop(asked.node)
        names = [one for one in walk(asked.node) if isinstance(one, cst.Name)]
        if loop is None or model.on_every_core(asked.node) is None:
            continue
        if any(_is_differentiated(model, one, asked) for one in names):
            return asked
    return None


def guard_by_loss(model: FileModel, node: cst.CSTNode) -> Guard | None:
    """The condition on a loss of this core's own by which not all cores come to a node."""
    return next((guard for guard in model.guards(node) if own_loss(model, guard)), None)


def _is_differentiated(model: FileModel, name: cst.Name, asked: CallSite) -> bool:
    """Whether a function takes the gradient of what it calls so, which nobody has reduced."""
    given = (part for value in model.assigned_to(name) for part in walk(value))
    if any(isinstance(one, cst.Call) and _is_reduced(model, one) for one in given):
        return False
    return any(
        isinstance(one, cst.Name) and one.value == name.value
        for call in model.methods("backward")
        if call.function is asked.function
        for place in _differentiated(call)
        for one in walk(place)
    )


def _is_reduced(model: FileModel, node: cst.Call) -> bool:
    return any(brings_together(model, one) for one in model.reached(node))


def _differentiated(call: CallSite) -> Iterator[cst.CSTNode]:
    """``loss`` of ``loss.backward()``, ``scaler.scale(loss).backward()``, ``backward(loss)``."""
    if call.receiver is not None:
        yield call.receiver
    yield from call.positional[:1]
