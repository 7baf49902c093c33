"""Gradients that a program clips before a framework reduces them over the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.model.words import words
from xladoctor.lint.rules._fabric import clips_of_fabric, fabric_of_cores
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE
from xladoctor.lint.rules._reads import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What reduces gradients where a program does it by hand.
_BY_HAND = (REDUCE, OPTIMIZER_STEP, "torch_xla.core.xla_model.all_reduce")


def clipped_by_fabric(model: FileModel) -> Iterator[Problem]:
    """``fabric.clip_gradients(net, optimizer, max_norm=1.0)``: Fabric reduces in the step."""
    made = fabric_of_cores(model)
    if made is None:
        return
    for clip in clips_of_fabric(model):
        before = (call for call in model.calls(REDUCE) if call.function is clip.function)
        if not_here(model, clip.node) or any(
            model.row(x.node) < model.row(clip.node) for x in before
        ):
            continue
        yield model.problem(
            clip.node,
            "Fabric reduces the gradients in optimizer.step(), by xm.optimizer_step; after "
            "clip_grad_norm_, which torch_xla replaces, that all-reduce is lost: each core applies "
            "its own gradients, and the models drift apart",
            suggestion="xm.reduce_gradients(optimizer) before it",
            related=[model.place(made.node, "several cores")],
        )


def clipped_under_accelerate(model: FileModel, clips: Sequence[str]) -> Iterator[Problem]:
    """``torch.nn.utils.clip_grad_norm_`` where Accelerate reduces in the optimizer's step."""
    for clip in model.calls(*clips):
        loop = None if not_here(model, clip.node) else model.step_loop(clip.node)
        calls = list(model.reached(loop.node)) if loop is not None else []
        passes = [call for call in calls if call.method == "backward" and _of_accelerate(call)]
        if not passes or any(call.name in _BY_HAND for call in calls):
            continue
        steps = [call for call in calls if call.method == "step" and call.receiver is not None]
        step = next((one for one in steps if _is_step_behind(model, one, clip)), None)
        if step is not None:
            yield model.problem(
                clip.node,
                "Accelerate reduces the gradients in optimizer.step() on XLA devices: clipped here "
                "they are each core's own, and after torch_xla's clip_grad_norm_ that all-reduce "
                "is lost",
                suggestion="accelerator.clip_grad_norm_(model.parameters(), max_norm), which "
                "reduces first",
                related=[model.place(step.node, "the all-reduce")],
            )


def _of_accelerate(call: CallSite) -> bool:
    """``accelerator.backward(loss)``, ``self.accelerator.backward(loss)``."""
    held = call.receiver
    name = held.attr if isinstance(held, cst.Attribute) else held
    return isinstance(name, cst.Name) and "accelerator" in words(name.value)


def _is_step_behind(model: FileModel, step: CallSite, clip: CallSite) -> bool:
    """Whether it is a step of an optimizer behind a clip."""
    behind = step.function is clip.function and model.row(step.node) > model.row(clip.node)
    return (
        behind and step.receiver is not None and model.value(step.receiver).kind is Kind.OPTIMIZER
    )
