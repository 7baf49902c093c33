"""Gradients that a program clips before a framework reduces them over the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._cores import trainer_of_cores
from xladoctor.lint.rules._fabric import clips_of_fabric, fabric_of_cores
from xladoctor.lint.rules._lightning_gone import is_own
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE
from xladoctor.lint.rules._reads import not_here
from xladoctor.lint.words import words

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


def clipped_in_lightning(model: FileModel, clips: Sequence[str]) -> Iterator[Problem]:
    """A clip between ``self.manual_backward(loss)`` and ``optimizer.step()`` of a module.

    Lightning reduces in the step: behind the closure, which does nothing where the module itself
    calls backward (2.6, plugins/precision/xla.py). Clipping by value loses nothing.
    """
    trainer = trainer_of_cores(model)
    if trainer is None:
        return
    own = [
        call
        for call in model.methods("clip_gradients")
        if isinstance(call.node.func, cst.Attribute)
        and is_own(model, call.node.func)
        and not _by_value(model, call)
    ]
    for clip in (*model.calls(*clips), *own):
        if not_here(model, clip.node):
            continue
        near = model.calls_of(clip.function)
        passes = [call for call in near if call.method == "manual_backward"]
        if not any(model.row(call.node) < model.row(clip.node) for call in passes):
            continue
        if any(call.name in _BY_HAND for call in near):
            continue
        step = next((call for call in near if _steps_behind(model, call, clip)), None)
        if step is not None:
            yield model.problem(
                clip.node,
                "Lightning reduces the gradients in optimizer.step(): clipped here they are each "
                "core's own, and after torch_xla's clip_grad_norm_ that all-reduce is lost: the "
                "cores' models drift apart",
                suggestion="automatic optimization with gradient_clip_val, which clips behind the "
                "reduction; by hand: gradient_clip_algorithm='value'",
                related=[
                    model.place(step.node, "the all-reduce"),
                    *trainer.places(model),
                ],
            )


def _by_value(model: FileModel, clip: CallSite) -> bool:
    """``gradient_clip_algorithm="value"``."""
    how = clip.argument(2, "gradient_clip_algorithm")
    return how is not None and model.literal(how) != "norm"


def _steps_behind(model: FileModel, call: CallSite, clip: CallSite) -> bool:
    """Whether an optimizer of Lightning's takes its step behind a clip."""
    if call.method != "step" or call.receiver is None or call.node.args:
        return False
    if model.row(call.node) <= model.row(clip.node):
        return False
    return model.value(call.receiver).kind is Kind.OPTIMIZER or _of_module(model, call.receiver)


def _of_module(model: FileModel, held: cst.BaseExpression) -> bool:
    """``g_opt, d_opt = self.optimizers()``."""
    made = model.made_of(held)
    return bool(made) and all(
        one is not None and any(call.method == "optimizers" for call in model.calls_in(one))
        for one in made
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
