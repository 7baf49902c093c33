"""Results that an evaluation joins batch by batch with the functions of transformers' Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: The Trainer's own, which take what there is and what is new; copies of them too.
NESTED = frozenset({"nested_concat", "torch_pad_and_concatenate"})
#: What brings tensors to the host, wherever it is imported from: ``_gather_and_numpify``.
_TO_HOST = "numpify"
_OF_HOST = frozenset({Kind.CPU_TENSOR, Kind.ARRAY, Kind.CONTAINER})


def takes_device_tensor(model: FileModel, call: CallSite) -> bool:
    """``nested_concat(kept, new)`` of what a step of the evaluation gave.

    It joins tensors: what nothing is known of is on the device, but for parts of the batch.
    """
    if call.last not in NESTED or not call.positional[1:]:
        return False
    given = call.positional[1]
    new = model.value(given)
    if new.holds_device_tensor:
        return True
    if new.kind is not Kind.UNKNOWN or _OF_HOST & {road.kind for road in new.roads}:
        return False
    asked = (_is_of_batch, _is_of_host, _is_of_unread)
    return not any(says(model, given) for says in asked)


def _is_of_batch(model: FileModel, node: cst.BaseExpression) -> bool:
    """``labels = batch.pop("labels")``, ``batch["labels"]``, for what the loop goes over."""
    loop = model.loop(node)
    targets = walk(loop.node.target) if loop is not None and isinstance(loop.node, cst.For) else ()
    bound = {part.value for part in targets if isinstance(part, cst.Name)}
    return any(
        isinstance(part, cst.Name) and part.value in bound
        for one in (node, *(sources(model, node) or ()))
        if not isinstance(one, cst.Call) or model.call(one).receiver is not None
        for part in walk(one.func if isinstance(one, cst.Call) else one)
    )


def _is_of_host(model: FileModel, node: cst.BaseExpression) -> bool:
    """``logits = nested_numpify(logits)``, somewhere: of a module that nobody has read."""
    made = [node, *(model.assigned_to(node) if isinstance(node, cst.Name) else ())]
    return any(isinstance(one, cst.Call) and _TO_HOST in model.call(one).last for one in made)


def _is_of_unread(model: FileModel, node: cst.BaseExpression) -> bool:
    """``loss, logits = self.prediction_step(batch)`` of a class that nobody has read."""
    for made in model.made_of(node) if isinstance(node, cst.Name) else ():
        if isinstance(made, cst.Call) and model.call(made).target is None:
            return isinstance(made.func, cst.Attribute) and is_name(made.func.value, "self")
    return False
