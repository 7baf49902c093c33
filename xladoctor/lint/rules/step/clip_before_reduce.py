"""XLA303: gradients are clipped before they are reduced, which loses the reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.trials import asks_for_script
from xladoctor.lint.rewrites.reduced import given_reduced
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._clipped import (
    clipped_by_fabric,
    clipped_in_lightning,
    clipped_under_accelerate,
)
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, REDUCE
from xladoctor.lint.rules._reads import not_here
from xladoctor.lint.rules._several_cores import several_cores
from xladoctor.lint.rules._sharded import reduced_by_ddp
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_REDUCES = (REDUCE, OPTIMIZER_STEP, "torch_xla.core.xla_model.all_reduce")
_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
#: torch_xla replaces ``torch.nn.utils.clip_grad_norm_``; this address keeps the original.
_UNPATCHED = "torch.nn.utils.clip_grad.clip_grad_norm_"
#: Functions of other packages that call it.
_DISPATCH = ("timm.utils.dispatch_clip_grad", "timm.utils.clip_grad.dispatch_clip_grad")

#: Words in the name of a function that clips gradients by their norm, and of others.
_GRADIENTS = frozenset({"grad", "grads", "gradient", "gradients"})
_OTHER_CLIPS = frozenset({"value", "agc", "adaptive"})
#: Words in the names of a program's own modules.
_HELPERS = frozenset(
    {"utils", "util", "helpers", "helper", "misc", "common", "lib", "src", "tools"}
)
#: Words in the names of modules that stand between a program and torch_xla.
_XLA_WORDS = frozenset({"xla", "tpu", "neuron"})


@rule("XLA303")
def clip_before_reduce(model: FileModel) -> Iterator[Problem]:
    """Find ``clip_grad_norm_`` between ``backward()`` and ``xm.optimizer_step``."""
    if not model.is_xla or model.spmd:
        return
    if "lightning" in model.frameworks:
        yield from clipped_by_fabric(model)
        yield from clipped_in_lightning(model, _CLIPS)
    if "accelerate" in model.frameworks:
        yield from clipped_under_accelerate(model, _CLIPS)
    if model.led_by:
        return
    reduces = list(model.calls(REDUCE))
    yield from _accumulated(model, reduces)
    clips = [*model.calls(*_CLIPS), *_dispatched(model), *_by_hand(model), *_by_name(model)]
    clips += _by_helper(model)
    steps = list(_steps(model)) if clips else []
    for clip in clips:
        elsewhere = not_here(model, clip.node) or _of_apex(model, clip)
        step = None if elsewhere else _step_after(model, clip, steps)
        if step is None or not several_cores(model, step):
            continue
        if any(
            call.function is clip.function and model.row(call.node) <= model.row(clip.node)
            for call in reduces
        ):
            continue
        if step.function is not clip.function and _reduced_before(model, clip, reduces):
            continue
        yield model.problem(
            clip.node,
            _message(model, clip, step),
            suggestion="xm.reduce_gradients(optimizer), then clip, then the plain optimizer.step()",
            related=[model.place(step.node, "the all-reduce")],
            fix=_fix(model, clip, step),
        )


def _of_apex(model: FileModel, clip: CallSite) -> bool:
    """``clip_grad_norm_(amp.master_params(optimizer), 1.0)``, and what a GPU's fp16 asks for."""
    given = clip.argument(0, "parameters")
    if isinstance(given, cst.Call) and model.call(given).written == "master_params":
        return True
    return any(
        guard.when and not {"fp16", "apex"}.isdisjoint(words(model.tree.text(guard.test)))
        for guard in model.guards(clip.node)
    )


def _dispatched(model: FileModel) -> Iterator[CallSite]:
    """``dispatch_clip_grad(model.parameters(), value, mode)``, by the norm unless it says so."""
    for call in model.calls(*_DISPATCH):
        mode = call.argument(2, "mode")
        if mode is None or model.literal(mode) not in {"value", "agc"}:
            yield call


def _by_hand(model: FileModel) -> Iterator[CallSite]:
    """``clip_gradients(model, 3.0)``: a function of the program that scales gradients itself."""
    for call in model.calls():
        function = call.target
        if (
            isinstance(function, Function)
            and "clip" in words(function.name)
            and any(map(_scales_gradient, walk(function.node)))
            and not any(one.name in {*_CLIPS, *_REDUCES} for one in model.reached(call.node))
        ):
            yield call


def _by_helper(model: FileModel) -> Iterator[CallSite]:
    """``clip_weights(net)`` of a linked file, which calls ``clip_grad_norm_`` and takes no step."""
    for call in model.calls():
        if not isinstance(call.target, Function) or model.is_here(call.target.node):
            continue
        inner = list(model.reached(call.node))
        steps = any(one.name in _REDUCES or one.method == "backward" for one in inner)
        if not steps and any(_clips_on_xla(model, one) for one in inner):
            yield call


def _clips_on_xla(model: FileModel, call: CallSite) -> bool:
    return call.name in _CLIPS and not not_here(model, call.node) and not _of_apex(model, call)


def _by_name(model: FileModel) -> Iterator[CallSite]:
    """``utils.clip_gradients(model, 3.0)`` of a module of the program that is not there to read.

    What is given no optimizer has reduced nothing before; nor has what the program reduces behind.
    """
    by_hand = {call.function for call in model.calls(REDUCE)}
    for call in model.calls():
        said = words(call.last)
        clips = "clip" in said and said & _GRADIENTS and not said & _OTHER_CLIPS
        if not clips or call.target is not None or not _is_of_program(call.name):
            continue
        given = [argument.value for argument in call.node.args]
        kinds = {model.value(node).kind for node in given}
        parameters = any(
            isinstance(node, cst.Call) and model.call(node).method == "parameters" for node in given
        )
        before = Kind.OPTIMIZER in kinds and call.function not in by_hand
        if not before and (Kind.MODEL in kinds or parameters):
            yield call


def _is_of_program(name: str | None) -> bool:
    """Whether a name is by its module one of the program's helpers: ``.misc``, ``lib.utils``."""
    module = (name or "").rpartition(".")[0]
    if (name or "").startswith("."):
        return True
    parts = [] if module.startswith("torch.") else module.split(".")
    return any(not words(part).isdisjoint(_HELPERS) for part in parts)


def _scales_gradient(node: cst.CSTNode) -> bool:
    """``p.grad.data.mul_(scale)``, ``p.grad *= scale``."""
    if isinstance(node, cst.AugAssign):
        scaled: cst.CSTNode = node.target
        if not isinstance(node.operator, cst.MultiplyAssign | cst.DivideAssign):
            return False
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        scaled = node.func.value
        if node.func.attr.value not in {"mul_", "div_"}:
            return False
    else:
        return False
    return any(
        isinstance(part, cst.Attribute) and part.attr.value == "grad" for part in walk(scaled)
    )


def _reduced_before(model: FileModel, clip: CallSite, reduces: list[CallSite]) -> bool:
    """Whether a caller of the function that clips has reduced before."""
    return any(
        call.function is caller.function and model.row(call.node) <= model.row(caller.node)
        for caller in (model.callers(clip.function) if clip.function is not None else ())
        for call in reduces
        if model.is_here(caller.node)
    )


def _accumulated(model: FileModel, reduces: list[CallSite]) -> Iterator[Problem]:
    """Reduce, clip, step, behind several backward passes: the reduction is lost too.

    Measured on torch_xla 2.9 with two cores (``rules/XLA303-clip-before-reduce.md``).
    """
    for clip in model.calls(*_CLIPS):
        if model.on_every_core(clip.node) is None:
            continue
        reduce = next((one for one in reduces if _just_before(model, one, clip)), None)
        if reduce is None or clip.name == _UNPATCHED:
            continue
        if _is_torchs_own(model, clip) and any(map(asks_for_script, model.nodes(cst.If))):
            continue  # a module may be imported behind torch_xla
        backward = _added_up(model, clip)
        if backward is not None:
            yield model.problem(
                reduce.node,
                "with gradients of several backward passes, what is reduced here is lost when "
                "clip_grad_norm_ follows (measured on 2.9): each core applies its own gradients",
                suggestion="for p in model.parameters(): p.grad = xm.all_reduce(xm.REDUCE_SUM, "
                "p.grad, scale=1.0 / xr.world_size()), then clip, then the plain step",
                related=[
                    model.place(backward, "gradients are added up here"),
                    model.place(clip.node, "the reduced gradients are clipped here"),
                ],
                fix=_accumulated_fix(model, reduce),
            )


def _added_up(model: FileModel, clip: CallSite) -> cst.CSTNode | None:
    """The backward pass that runs more often than a clip of the same step loop, None if none."""
    loop = model.step_loop(clip.node)
    if loop is None or not model.throttled(clip.node, of_batches=True):
        return None
    passes = (
        event.node
        for event in model.effects.of(Effect.BACKWARD)
        if model.step_loop(event.node) is loop and not model.throttled(event.node, of_batches=True)
    )
    return next(passes, None)


def _just_before(model: FileModel, reduce: CallSite, clip: CallSite) -> bool:
    """Whether a reduction of the same turns runs before a clip: settings may decide on each."""
    return (
        model.row(reduce.node) < model.row(clip.node)
        and model.step_loop(reduce.node) is model.step_loop(clip.node)
        and model.throttled(reduce.node, of_batches=True)
        and not opposed(model.guards(reduce.node), model.guards(clip.node))
    )


def _conditions(model: FileModel, call: CallSite) -> list[tuple[cst.BaseExpression, bool]]:
    """What must hold for a call to run. Guards themselves are made anew for each node."""
    return [(guard.test, guard.when) for guard in model.guards(call.node)]


def _message(model: FileModel, clip: CallSite, step: CallSite) -> str:
    if clip.name not in {*_CLIPS, *_DISPATCH} or _is_torchs_own(model, clip):
        return (
            "clipped before the all-reduce: each core scales by the norm of its own gradients, and "
            "the mean that is applied was clipped by none of them"
        )
    spelled = {OPTIMIZER_STEP: "xm.optimizer_step", REDUCE: "xm.reduce_gradients"}
    written = spelled.get(step.name or "", "the optimizer step")
    return (
        f"after clip_grad_norm_, which torch_xla replaces, {written}'s all-reduce is lost "
        "(measured on 2.9): each core applies its own gradients, and the models drift apart"
    )


def _is_torchs_own(model: FileModel, clip: CallSite) -> bool:
    """Whether a clip is PyTorch's, which keeps the reduction, and not what torch_xla puts there."""
    if clip.name == _UNPATCHED:
        return True
    imported = clip.name in _CLIPS and isinstance(clip.node.func, cst.Name)
    return imported and not _imported_after_torch_xla(model)


def _imported_after_torch_xla(model: FileModel) -> bool:
    """Whether ``from torch.nn.utils import ...`` gets the function as torch_xla replaced it."""
    rows = {"torch_xla": 0, "clip": 0}
    for node in model.tree.imports:
        text = model.tree.text(node)
        if "torch_xla" in text and not rows["torch_xla"]:
            rows["torch_xla"] = model.row(node)
        if "clip_grad_norm_" in text:
            rows["clip"] = model.row(node)
    return rows["clip"] > rows["torch_xla"] > 0


def _step_after(
    model: FileModel, clip: CallSite, steps: Sequence[CallSite], depth: int = 2
) -> CallSite | None:
    """The first reducing step after the clip in the same function and step loop, or what it calls.

    Where a function does nothing but clip, in those that call it.
    """
    loop = model.step_loop(clip.node)
    following = (
        call
        for call in steps
        if call.function is clip.function
        and model.row(call.node) >= model.row(clip.node)
        and model.step_loop(call.node) is loop
        and not opposed(model.guards(clip.node), model.guards(call.node))
    )
    found = next(following, None)
    if found is not None or clip.function is None or depth == 0:
        return found
    callers = [call for call in model.callers(clip.function) if model.is_here(call.node)]
    return next(filter(None, (_step_after(model, one, steps, depth - 1) for one in callers)), None)


def _steps(model: FileModel) -> Iterator[CallSite]:
    """The calls that reduce gradients, most to step then, in source order; not behind DDP."""
    for call in model.calls():
        reduces = call.name in {OPTIMIZER_STEP, REDUCE}
        if reduces and reduced_by_ddp(model, call) is not None:
            continue
        if reduces or _runs_step(model, call) or _is_named_step(model, call):
            yield call


def _runs_step(model: FileModel, call: CallSite) -> bool:
    """Whether a call runs a function of the program that reduces and steps, and clips nothing."""
    if call.target is None:
        return False
    inner = model.reached(call.node)
    return any(one.name == OPTIMIZER_STEP for one in inner) and not any(
        one.name in {*_CLIPS, REDUCE} for one in inner
    )


def _is_named_step(model: FileModel, call: CallSite) -> bool:
    """``xla_compat.optimizer_step(optimizer)``: of a module for XLA that nobody has read."""
    module, _, name = (call.name or "").rpartition(".")
    given = call.argument(0, "optimizer")
    return (
        call.target is None
        and name == "optimizer_step"
        and bool(words(module) & _XLA_WORDS)
        and given is not None
        and model.value(given).kind is Kind.OPTIMIZER
    )


def _fix(model: FileModel, clip: CallSite, step: CallSite) -> Fix | None:
    """Reduce, clip, step: only for the plain form, where what each part does is in sight."""
    optimizer = step.argument(0, "optimizer")
    if (
        step.name != OPTIMIZER_STEP
        or not isinstance(optimizer, cst.Name | cst.Attribute)
        or len(step.node.args) != 1
        or _conditions(model, clip) != _conditions(model, step)
    ):
        return None
    name = model.tree.text(optimizer).strip()
    if _added_up(model, clip) is None:
        reduce = model.spelled(REDUCE, clip.node)
        first = None if reduce is None else [model.insert_before(clip.node, f"{reduce}({name})")]
    else:
        first = given_reduced(model, clip.node, name)
    return model.fix(
        "Reduce, then clip, then step",
        *(first or [None]),
        model.replace(step.node, f"{name}.step()"),
        safe=False,
    )


def _accumulated_fix(model: FileModel, reduce: CallSite) -> Fix | None:
    """Each parameter is given its reduced gradient, in place of ``xm.reduce_gradients``."""
    optimizer = reduce.argument(0, "optimizer")
    if not isinstance(optimizer, cst.Name | cst.Attribute) or len(reduce.node.args) != 1:
        return None
    given = given_reduced(model, reduce.node, model.tree.text(optimizer).strip())
    return model.fix(
        "Give each parameter its reduced gradient",
        *(given or [None]),
        model.remove_statement(reduce.node),
        safe=False,
    )
