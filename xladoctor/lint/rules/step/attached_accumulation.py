"""XLA315: a running sum of losses that keeps every step's autograd history."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import libcst as cst

from xladoctor.lint.model import Function, LoopKind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._carried import carried
from xladoctor.lint.rules._gradients import in_no_grad
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


_NO_GRAD = "no_grad"
#: What a framework calls with each batch, and runs the backward pass of what it gives back.
_GIVES_LOSS = frozenset({"training_step", "compute_loss"})


@rule("XLA315")
def attached_accumulation(model: FileModel) -> Iterator[Problem]:
    """Find sums and lists over steps of a loss that ``backward`` was called on."""
    if not model.is_xla:
        return
    backward = list(_backward_calls(model))
    sources = {
        text
        for _, loss in backward
        for part in walk(loss)
        if isinstance(part, cst.BaseExpression) and (text := dotted_text(part))
    }
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP:
            continue
        own = [loss for call, loss in backward if model.loop(call.node) is loop]
        losses = _losses(model, _given_back(model, loop) if loop.implicit else own)
        for node in walk(loop.node, into_functions=False) if losses else ():
            if model.loop(node) is loop or loop.implicit:
                yield from _kept(model, loop, node, losses, sources)
    for function in model.functions:
        # The step is a function: what it is given and gives back goes on.
        own = [loss for call, loss in backward if call.function is function]
        losses = _losses(model, [loss for loss in own if model.loop(loss) is None])
        for node in walk(function.node, into_functions=False) if losses else ():
            if model.loop(node) is not None:
                continue
            found = _accumulates(model, node, losses)
            call = carried(model, function, found[1]) if found is not None else None
            around = model.step_loop(node) if call is None else model.loop(call.node)
            named = found is not None and call is None and found[1].isidentifier()
            if around is not None and around.kind is LoopKind.STEP and not named:
                yield from _kept(model, around, node, losses, sources)


def _kept(
    model: FileModel, loop: Loop, node: cst.CSTNode, losses: set[str], sources: set[str]
) -> Iterator[Problem]:
    """The problem of a statement that adds a loss to what is kept, or of a call that does."""
    found = _accumulates(model, node, losses)
    if found is not None:
        if found[1] not in sources and not _begins_anew(model, loop, node, found[1]):
            yield from _problem(model, loop, node, *found)
        return
    within = _by_meter(model, node, losses)
    if within is not None:
        yield from _problem(model, loop, node, *within)


def _problem(
    model: FileModel, loop: Loop, node: cst.CSTNode, loss: cst.BaseExpression, total: str
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
    named = (node for node in nodes if model.value(node).is_device_tensor)
    return {text for node in named if (text := dotted_text(node)) is not None}


def _given_back(model: FileModel, loop: Loop) -> list[cst.BaseExpression]:
    """The losses that a step of Lightning or of a Trainer gives back."""
    if not isinstance(loop.node, cst.FunctionDef) or loop.node.name.value not in _GIVES_LOSS:
        return []
    found: list[cst.BaseExpression] = []
    for node in walk(loop.node, into_functions=False):
        value = node.value if isinstance(node, cst.Return) else None
        if isinstance(value, cst.Dict):
            pairs = (part for part in value.elements if isinstance(part, cst.DictElement))
            found += [part.value for part in pairs if model.literal(part.key) == "loss"]
        elif isinstance(value, cst.IfExp):  # ``return (loss, outputs) if return_outputs else loss``
            found.append(value.orelse)
        elif value is not None:
            found.append(value)
    return found


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
) -> tuple[cst.BaseExpression, str] | None:
    """The loss that a statement adds, and the name of what it adds it to."""
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        loss, total = _bare(node.value, losses), _place(model, node.target)
        if loss is not None and total is not None:
            return loss, total
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        total = _place(model, node.targets[0].target)
        if total is not None and total not in losses:
            sums = (part for part in walk(node.value) if isinstance(part, cst.BinaryOperation))
            for part in sums:
                if isinstance(part.operator, cst.Add) and _is_part(model, part.left, total):
                    loss = _bare(part.right, losses)
                    if loss is not None:
                        return loss, total
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        call = model.call(node.value)
        if call.method == "append" and call.receiver is not None and call.positional:
            item, total = call.positional[0], _place(model, call.receiver)
            if dotted_text(item) in losses and total is not None:
                return item, total
    return None


def _place(model: FileModel, node: cst.BaseExpression) -> str | None:
    """The text of what is kept from step to step: ``total``, ``self.total``, ``totals["loss"]``."""
    if isinstance(node, cst.Subscript):
        return None if dotted_text(node.value) is None else model.tree.text(node).strip()
    return dotted_text(node)


def _is_part(model: FileModel, node: cst.BaseExpression, total: str) -> bool:
    """``total``, or ``0.9 * total`` of a mean that follows."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return _is_part(model, node.left, total) or _is_part(model, node.right, total)
    return _place(model, node) == total


def _bare(node: cst.BaseExpression, losses: set[str]) -> cst.BaseExpression | None:
    """The loss in an expression of numbers, if nothing cuts its history."""
    if isinstance(node, cst.BinaryOperation):
        return _bare(node.left, losses) or _bare(node.right, losses)
    return node if dotted_text(node) in losses else None


def _begins_anew(model: FileModel, loop: Loop, node: cst.CSTNode, total: str) -> bool:
    """Whether each step sets what is kept to something else first: ``self.total = 0``."""
    holder = total.partition("[")[0]
    for line in model.nodes(cst.Assign):
        if line is node or not any(
            _place(model, one.target) in {total, holder} for one in line.targets
        ):
            continue
        inside = model.hot_loop(line) is loop and not model.throttled(line)
        if inside and _place(model, line.targets[0].target) is not None:
            parts = (_place(model, part) for part in walk(line.value) if _is_expression(part))
            if total not in parts:
                return True
    return False


def _is_expression(node: cst.CSTNode) -> TypeGuard[cst.BaseExpression]:
    return isinstance(node, cst.Name | cst.Attribute | cst.Subscript)


def _by_meter(
    model: FileModel, node: cst.CSTNode, losses: set[str]
) -> tuple[cst.BaseExpression, str] | None:
    """``meter.update(loss)`` of a meter of the program, which adds up what it is given."""
    if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
        return None
    call = model.call(node.value)
    method = call.target
    if not isinstance(method, Function) or method.owner is None or call.receiver is None:
        return None
    if any(_NO_GRAD in model.tree.text(one) for one in method.decorators):
        return None
    own = int(not method.is_static)
    for index, name in enumerate(method.parameters[own:]):
        given = call.argument(index, name)
        loss = _bare(given, losses) if given is not None else None
        if loss is None:
            continue
        inside = list(walk(method.node, into_functions=False))
        anew = (
            _place(model, one.target)
            for part in inside
            if isinstance(part, cst.Assign)
            for one in part.targets
        )
        if name in anew:
            continue  # ``value = value.detach()``
        kept = (_accumulates(model, part, {name}) for part in inside if not in_no_grad(model, part))
        total = next((one[1] for one in kept if one is not None and "." in one[1]), None)
        if total is not None:
            return loss, total
    return None
