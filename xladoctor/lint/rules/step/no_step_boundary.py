"""XLA301: nothing ends the graph in a step loop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import moved_by_hand
from xladoctor.lint.rules._protocol import (
    OPTIMIZER_STEP,
    compiles,
    steps_optimizer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem, Value

#: What a loop can go over without anything ending the graph between two iterations.
_PASSIVE = frozenset({Kind.LOADER, Kind.CONTAINER, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER})
#: Names of functions that may end the graph.
_ENDS = re.compile(r"sync|mark|barrier|step|flush|callback", re.IGNORECASE)
_READS = frozenset({"item", "cpu", "tolist", "numpy"})


@rule("XLA301")
def no_step_boundary(model: FileModel) -> Iterator[Problem]:
    """Find step and evaluation loops over plain loaders in which nothing syncs."""
    if not model.is_xla or model.frameworks or compiles(model):
        return
    for loop in model.loops:
        by_hand = loop.iterates.kind is Kind.UNKNOWN and loop.kind is LoopKind.STEP
        if loop.implicit or not (loop.iterates.kind in _PASSIVE or by_hand):
            continue
        calls = model.reached(loop.node)
        if any(model.effects.ends_graph(call) for call in calls) or not _uses_device(model, loop):
            continue
        if by_hand:
            # What moves its batches itself does not get them from a device loader.
            if (
                moved_by_hand(model, loop)
                and not _is_handed_in(model, loop)
                and not _may_end_elsewhere(model, loop, calls)
            ):
                yield from _training(model, loop, calls)
            continue
        if _may_be_device_loader(model, loop) or not _known(loop.iterates):
            continue
        if loop.iterates.kind is not Kind.LOADER and _ended_outside(model, loop):
            continue
        if loop.kind is LoopKind.STEP:
            yield from _training(model, loop, calls)
        elif loop.kind is LoopKind.EVAL and loop.iterates.kind is Kind.LOADER:
            yield from _evaluation(model, loop, calls)


def _training(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> Iterator[Problem]:
    step = next(
        (c for c in calls if c.name == OPTIMIZER_STEP or steps_optimizer(model, c)),
        None,
    )
    if step is None:
        return
    if step.name == OPTIMIZER_STEP:
        fix = model.fix(
            "Give barrier=True", model.add_argument(step.node, "barrier=True"), safe=False
        )
        advice = (
            "give xm.optimizer_step(optimizer, barrier=True), or wrap the loader in "
            "pl.MpDeviceLoader(loader, device)"
        )
        why = "xm.optimizer_step without barrier=True does not end the graph"
    else:
        fix = _sync_fix(model, loop, step)
        advice = (
            "call torch_xla.sync() after the optimizer step, or wrap the loader in "
            "pl.MpDeviceLoader(loader, device)"
        )
        why = "a plain loader does not end the graph"
    yield model.problem(
        loop.node,
        f"nothing in this step loop ends the graph ({why}): it grows with every step, and so do "
        "tracing, compilation and memory",
        suggestion=advice,
        related=[model.place(step.node, "the optimizer step")],
        fix=fix,
    )


def _evaluation(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> Iterator[Problem]:
    if any(call.method in _READS for call in calls):
        return  # each read runs what it needs: another matter (XLA101), and the graph stays small
    yield model.problem(
        loop.node,
        "nothing in this evaluation loop ends the graph: all its batches become one graph, "
        "compiled anew for every number of batches",
        suggestion="call torch_xla.sync() at the end of the body, or wrap the loader in "
        "pl.MpDeviceLoader(loader, device)",
    )


def _uses_device(model: FileModel, loop: Loop) -> bool:
    """Whether the loop certainly has to do with the device."""

    def on_device(node: cst.BaseExpression) -> bool:
        value = model.value(node)
        return value.is_device_tensor or (value.kind is Kind.MODEL and value.on_device)

    return any(on_device(node) for node in walk(loop.node) if isinstance(node, cst.Name | cst.Call))


def _sync_fix(model: FileModel, loop: Loop, step: CallSite) -> Fix | None:
    """``torch_xla.sync()`` behind the optimizer's step, if nothing better is offered.

    Where the loop moves its batches by hand, a device loader does both (XLA603).
    """
    line = line_of(model, step.node)
    moves = any(
        call.method == "to" and model.value(call.node).origin is call.node
        for call in model.reached(loop.node)
    )
    written = spell(model, loop.node, "torch_xla.sync")
    if moves or written is None or line is None or model.loop(step.node) is not loop:
        return None
    behind = insert_behind(model, line, f"{written[0]}()")
    return model.fix("End the graph of each step", behind, written[1], safe=False)


def _may_be_device_loader(model: FileModel, loop: Loop) -> bool:
    """A loader by its name alone, in a program that has device loaders: nobody knows which."""
    if loop.iterates.kind is not Kind.LOADER or isinstance(loop.iterates.origin, cst.Call):
        return False
    names = ("MpDeviceLoader", "ParallelLoader", "per_device_loader")
    return any(
        (call.name or call.method or "").endswith(names)
        for part in (model, *model.linked)
        for call in part.calls()
    )


def _ended_outside(model: FileModel, loop: Loop) -> bool:
    """A few steps on one batch: the loop that calls this may end the graph, or nobody knows it."""
    function = loop.function
    if function is None:
        return False
    callers = model.callers(function)
    if not callers:
        # What asks for the device itself is no helper that is handed a batch.
        asks = any(
            call.name in model.library.returning(Returns.DEVICE)
            for call in model.reached(function.node)
        )
        return bool(function.parameters) and model.on_every_core(loop.node) is None and not asks
    around = (model.loop(call.node) for call in callers)
    return any(outer is not None and _ends(model, outer) for outer in around)


def _ends(model: FileModel, loop: Loop) -> bool:
    if loop.iterates.kind not in _PASSIVE:
        return True
    return model.effects.ends(loop.node)


def _may_end_elsewhere(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> bool:
    """Whether something that nobody has read is given the optimizer, or ends steps by its name."""
    for call in calls:
        last = (
            (call.name or "").rpartition(".")[2] or call.method or model.tree.text(call.node.func)
        )
        if call.target is None and _ENDS.search(last) and not _is_torchs(call):
            return True
        given = [argument.value for argument in call.node.args]
        read = call.target is not None or (call.name or "").startswith(("torch.", "torch_xla."))
        if not read and any(model.value(node).kind is Kind.OPTIMIZER for node in given):
            return True
    return _ended_outside(model, loop)


def _is_handed_in(model: FileModel, loop: Loop) -> bool:
    """Whether a caller that nobody has read gives what the loop goes over."""
    if not isinstance(loop.node, cst.For):
        return False
    sources = [part for part in walk(loop.node.iter) if _is_name(part)]
    names = {model.tree.text(part).strip() for part in sources}
    for node in model.nodes(cst.Assign):
        if any(model.tree.text(target.target).strip() in names for target in node.targets):
            sources += [part for part in walk(node.value) if _is_name(part)]
    return any(
        binding.kind == "param" and _is_uncalled(model, part)
        for part in sources
        if isinstance(part, cst.Name)
        for binding in model.bindings(part.value, part)
    )


def _is_name(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name | cst.Attribute)


def _is_uncalled(model: FileModel, node: cst.CSTNode) -> bool:
    function = model.function_of(node)
    return function is not None and not model.callers(function)


def _is_torchs(call: CallSite) -> bool:
    """``optimizer.step()``, ``scheduler.step()`` and torch's own functions end nothing."""
    return call.method == "step" or (call.name or "").startswith(
        ("torch.", "torch_xla.", "builtins.")
    )


def _known(value: Value) -> bool:
    """Whether what a loop goes over is known, also within ``enumerate``."""
    if value.kind is not Kind.CONTAINER:
        return value.kind is not Kind.UNKNOWN
    if value.items:
        return all(_known(item) for item in value.items)
    return value.element is not None and _known(value.element)
