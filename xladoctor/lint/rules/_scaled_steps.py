"""Steps that a gradient scaler takes: it reduces nothing over the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.rules._exact import chosen_precision, same_name
from xladoctor.lint.rules._protocol import ALL_REDUCE, OPTIMIZER_STEP, REDUCE, reduces_gradients
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place

_SCALER = "GradScaler"
_OWN = "torch_xla.amp."
#: What else reduces the gradients before ``scaler.step(optimizer)``.
_REDUCE = (
    REDUCE,
    *ALL_REDUCE,
    "torch_xla.core.xla_model._fetch_gradients",
    "torch.distributed.all_reduce",
)


def scaled_steps(model: FileModel) -> Iterator[Problem]:
    """``scaler.step(optimizer)`` on several cores.

    Where nothing reduces gradients, or where the other branch alone does
    (``if amp: scaler.step(optimizer)``, ``else: xm.optimizer_step(optimizer)``).
    """
    for call in model.methods("step"):
        optimizer, made = call.argument(0, "optimizer"), _scaler(model, call)
        if optimizer is None or made is None or model.master_only(call.node) is not None:
            continue
        if model.value(optimizer).kind is not Kind.OPTIMIZER:
            continue
        related = _why(model, call, optimizer, made)
        if related is not None:
            yield model.problem(
                call.node,
                "a gradient scaler steps without reducing the gradients over the cores: each "
                "applies those of its own batch, and they train different models",
                suggestion="xm.reduce_gradients(optimizer) before it; or bfloat16, which needs no "
                "scaler, and xm.optimizer_step(optimizer)",
                related=related,
            )


def _scaler(model: FileModel, step: CallSite) -> str | None:
    """The class of the scaler whose step a call is."""
    made = sources(model, step.receiver) if step.receiver is not None else None
    names = [model.call(one).name or "" for one in made or () if isinstance(one, cst.Call)]
    if not made or len(names) != len(made):
        return None
    return names[0] if all(name.rpartition(".")[2] == _SCALER for name in names) else None


def _why(
    model: FileModel, step: CallSite, optimizer: cst.BaseExpression, scaler: str
) -> list[Place] | None:
    """What says that the cores are several, and that nothing reduces; None if it may."""
    if any(True for part in (model, *model.linked) for _ in part.calls(*_REDUCE)):
        return None
    own = scaler.startswith(_OWN)
    guards = model.guards(step.node)
    for other in model.calls(OPTIMIZER_STEP):
        same = same_name(optimizer, other.argument(0, "optimizer"))
        if own and same and opposed(guards, model.guards(other.node)):
            several = other.argument(1, "barrier") is None
            return [model.place(other.node, "reduces them here")] if several else None
    entry = model.on_every_core(step.node)
    if entry is None or reduces_gradients(model):
        return None
    if not own and chosen_precision(model, step.node):
        return None  # of torch's: it may be meant for GPUs
    return [model.place(entry.call, "the cores are started here")] if entry.call else []
