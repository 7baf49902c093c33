"""XLA315: a running sum of losses that keeps every step's autograd history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._carried import carried
from xladoctor.lint.rules._gradients import in_no_grad
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


@rule("XLA315")
def attached_accumulation(model: FileModel) -> Iterator[Problem]:
    """Find sums and lists over steps of a loss that ``backward`` was called on."""
    if not model.is_xla:
        return
    backward = list(_backward_calls(model))
    sources = {
        part.value for _, loss in backward for part in walk(loss) if isinstance(part, cst.Name)
    }
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP or loop.implicit:
            continue
        losses = _losses(model, [loss for call, loss in backward if model.loop(call.node) is loop])
        for node in walk(loop.node, into_functions=False):
            found = _accumulates(model, node, losses)
            if found is None or found[1] in sources or model.loop(node) is not loop:
                continue
            yield from _problem(model, loop, node, *found)
    for function in model.functions:
        # The step is a function: what it is given and gives back goes on.
        own = [(call, loss) for call, loss in backward if call.function is function]
        losses = _losses(model, [loss for call, loss in own if model.loop(call.node) is None])
        for node in walk(function.node, into_functions=False) if losses else ():
            found = _accumulates(model, node, losses)
            if found is None or found[1] in sources or model.loop(node) is not None:
                continue
            call = carried(model, function, found[1])
            around = None if call is None else model.loop(call.node)
            if around is not None and around.kind is LoopKind.STEP:
                yield from _problem(model, around, node, *found)


def _problem(
    model: FileModel, loop: Loop, node: cst.CSTNode, loss: cst.Name, total: str
) -> Iterator[Problem]:
    if model.throttled(node) or in_no_grad(model, node):
        return
    detached = f"{model.tree.text(loss).strip()}.detach()"
    yield model.problem(
        node,
        f"{snippet(model, loss)} brings its autograd history along: `{total}` keeps that of every "
        "step, and memory grows until it runs out",
        suggestion=f"add {detached}",
        related=[loop_place(model, loop)],
        fix=model.fix("Detach it", model.replace(loss, detached), safe=True),
    )


def _losses(model: FileModel, nodes: list[cst.BaseExpression]) -> set[str]:
    names = (node for node in nodes if isinstance(node, cst.Name))
    return {node.value for node in names if model.value(node).is_device_tensor}


def _backward_calls(model: FileModel) -> Iterator[tuple[CallSite, cst.BaseExpression]]:
    """Each ``x.backward()`` or ``accelerator.backward(x)``, and ``x``."""
    for call in model.methods("backward", "manual_backward"):
        if call.receiver is None or call.name is not None:
            continue
        if call.positional and not model.value(call.receiver).is_device_tensor:
            yield call, call.positional[0]
        elif call.method == "backward":
            yield call, call.receiver


def _accumulates(
    model: FileModel, node: cst.CSTNode, losses: set[str]
) -> tuple[cst.Name, str] | None:
    """The loss that a statement adds, and the name of what it adds it to."""
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        loss = _bare(node.value, losses)
        if loss is not None and isinstance(node.target, cst.Name):
            return loss, node.target.value
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        if isinstance(target, cst.Name) and target.value not in losses:
            sums = (part for part in walk(node.value) if isinstance(part, cst.BinaryOperation))
            for part in sums:
                if isinstance(part.operator, cst.Add) and is_name(part.left, target.value):
                    loss = _bare(part.right, losses)
                    if loss is not None:
                        return loss, target.value
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        call = model.call(node.value)
        if call.target is not None:
            return None  # a class of the program's own, which may keep numbers alone
        if call.method == "append" and isinstance(call.receiver, cst.Name) and call.positional:
            item = call.positional[0]
            if isinstance(item, cst.Name) and item.value in losses:
                return item, call.receiver.value
    return None


def _bare(node: cst.BaseExpression, losses: set[str]) -> cst.Name | None:
    """The loss in an expression of numbers, if nothing cuts its history."""
    if isinstance(node, cst.BinaryOperation):
        return _bare(node.left, losses) or _bare(node.right, losses)
    return node if isinstance(node, cst.Name) and node.value in losses else None
