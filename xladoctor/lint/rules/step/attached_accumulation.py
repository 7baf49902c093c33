"""XLA315: a running sum of losses that keeps every step's autograd history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Loop, Problem


@rule("XLA315")
def attached_accumulation(model: FileModel) -> Iterator[Problem]:
    """Find sums and lists over steps of a loss that ``backward`` was called on."""
    if not model.is_xla:
        return
    backward = _backward_calls(model)
    sources = {
        part.value
        for _, receiver in backward
        for part in walk(receiver)
        if isinstance(part, cst.Name)
    }
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP or loop.implicit:
            continue
        losses = {
            receiver.value
            for around, receiver in backward
            if around is loop
            and isinstance(receiver, cst.Name)
            and model.value(receiver).is_device_tensor
        }
        for node in walk(loop.node, into_functions=False):
            found = _accumulates(model, node, losses)
            if found is None:
                continue
            loss, total = found
            if total in sources or model.loop(node) is not loop or model.throttled(node):
                continue
            detached = f"{model.tree.text(loss).strip()}.detach()"
            yield model.problem(
                node,
                f"{snippet(model, loss)} brings its autograd history along: `{total}` keeps that "
                "of every step, and memory grows until it runs out",
                suggestion=f"add {detached}",
                related=[loop_place(model, loop)],
                fix=model.fix("Detach it", model.replace(loss, detached), safe=True),
            )


def _backward_calls(model: FileModel) -> list[tuple[Loop | None, cst.BaseExpression]]:
    """The loop around each ``x.backward()``, and ``x``."""
    return [
        (model.loop(call.node), call.receiver)
        for call in model.methods("backward")
        if call.receiver is not None and call.name is None
    ]


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
                if isinstance(part.operator, cst.Add) and _is(part.left, target.value):
                    loss = _bare(part.right, losses)
                    if loss is not None:
                        return loss, target.value
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        call = model.call(node.value)
        if call.method == "append" and isinstance(call.receiver, cst.Name) and call.positional:
            item = call.positional[0]
            if isinstance(item, cst.Name) and item.value in losses:
                return item, call.receiver.value
    return None


def _is(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _bare(node: cst.BaseExpression, losses: set[str]) -> cst.Name | None:
    """The loss in an expression of numbers, if nothing cuts its history."""
    if isinstance(node, cst.BinaryOperation):
        return _bare(node.left, losses) or _bare(node.right, losses)
    return node if isinstance(node, cst.Name) and node.value in losses else None
