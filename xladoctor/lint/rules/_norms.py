"""Norms of gradients that nobody has reduced: each core has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules._protocol import ALL_REDUCE, REDUCE

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel, Guard

_UTILS = "torch.nn.utils."
#: What gives the norm of all gradients.
_NORMS = (
    f"{_UTILS}clip_grad_norm_",
    f"{_UTILS}clip_grad.clip_grad_norm_",
    f"{_UTILS}get_total_norm",
)
#: Ends of names of wrappers that reduce gradients in the backward pass.
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")
#: Names on the way from a condition to the norm.
_DEPTH = 3


def own_norm(model: FileModel, guard: Guard) -> CallSite | None:
    """The call whose norm of this core's own gradients a condition compares.

    ``norm = clip_grad_norm_(...)`` and ``if not torch.isfinite(norm): continue``, where nothing
    reduces gradients before the step.
    """
    for clip in _clips(model, guard.test, _DEPTH):
        loop = model.step_loop(clip.node)
        if loop is None or model.on_every_core(clip.node) is None or is_wrapped(model):
            continue
        reached = {call.name for call in model.reached(loop.node)}
        if not reached & {REDUCE, *ALL_REDUCE}:
            return clip
    return None


def guard_by_norm(model: FileModel, node: cst.CSTNode) -> Guard | None:
    """The condition on a norm of this core's own by which not all cores come to a node."""
    return next((guard for guard in model.guards(node) if own_norm(model, guard)), None)


def _clips(model: FileModel, node: cst.CSTNode, depth: int) -> list[CallSite]:
    """The norms that an expression is made of, through the names that hold them."""
    found: list[CallSite] = []
    for part in walk(node):
        if isinstance(part, cst.Call) and model.call(part).name in _NORMS:
            found.append(model.call(part))
        elif isinstance(part, cst.Name) and depth:
            order = model.tree.order
            made = [
                one for one in model.assigned_to(part) if order.get(one, 0) < order.get(part, 0)
            ]
            for value in made[-1:]:
                found += _clips(model, value, depth - 1)
    return found


def is_wrapped(model: FileModel, wrappers: tuple[str, ...] = _WRAPPERS) -> bool:
    """Whether a model is wrapped in what reduces its gradients in the backward pass."""
    names = (call.name or "" for part in (model, *model.linked) for call in part.calls())
    return any(name.endswith(wrappers) for name in names)
