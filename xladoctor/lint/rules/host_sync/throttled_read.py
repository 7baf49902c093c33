"""XLA113: a read in the middle of the step, once in a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.loops import HOT, opposed
from xladoctor.lint.rewrites.closures import closure_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._asked import asked_tensors
from xladoctor.lint.rules._formatting import FORMATTING, formats, only_on_failure
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Guard, Loop, Problem

#: Helpers within helpers that read.
_HELPERS = 2


@rule("XLA113")
def throttled_read(model: FileModel) -> Iterator[Problem]:
    """Find reads under ``if step % 50 == 0`` that come before the end of the step's graph."""
    if not model.is_xla:
        return
    rows: set[int] = set()
    reads = [(node, _read(model, node)) for node in model.nodes(*FORMATTING)]
    for node, tensor in (*reads, *((asked, asked) for _, asked in asked_tensors(model))):
        if tensor is None or not model.throttled(node) or only_on_failure(model, node):
            continue
        if _of_evaluation(model, tensor):
            continue
        loop, due = model.step_loop(node), _every_so_often(model, node)
        if loop is None or due is None or model.in_step_closure(node):
            continue
        guard, place = due
        if loop.implicit and not _goes_backward_after(model, loop):
            continue
        row = model.row(node)
        if (
            row in rows
            or not model.is_here(loop.node)
            or model.effects.ran_before(place, tensor, loop)
            or model.effects.made_behind(place, tensor, loop, guard.node)
            or _ended_since(model, guard, place, loop)
        ):
            continue
        rows.add(row)
        yield model.problem(
            node,
            f"{snippet(model, tensor)} is read before the step has ended: when this is due, the "
            "host waits, and the step runs as two graphs, which are compiled for it",
            suggestion="xm.add_step_closure(log, args=(loss.detach(),)), which reads when the "
            "step has run",
            related=[model.place(guard.written, "once in a while"), loop_place(model, loop)],
            fix=closure_fix(model, node, loop),
        )


def _goes_backward_after(model: FileModel, loop: Loop) -> bool:
    """``forward`` of a model, ``compute_loss`` of a Trainer of transformers: the step goes on."""
    function = loop.function
    owner = function.owner if function is not None else None
    if function is None or owner is None:
        return False
    forward = function.name == "forward" and model.is_module(owner)
    return forward or model.is_trainer(owner)


def _read(model: FileModel, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The device tensor that a node reads on the host, or None."""
    event = model.effects.read_at(node)
    if event is not None:
        return event.value
    found = formats(model, node)
    return found[1] if found is not None else None


def _ended_since(model: FileModel, guard: Guard, node: cst.CSTNode, loop: Loop) -> bool:
    """Whether what is due has ended the step's graph before it comes to a read.

    ``accelerator.wait_for_everyone()``, or an evaluation over a device loader right there.
    """
    order, around = model.tree.order, set(model.tree.ancestors(node))
    for end in model.effects.ends_between(guard.node, node, loop):
        there = guard.node in model.tree.ancestors(end) and end not in around
        if there and not opposed(model.guards(end), model.guards(node)):
            return True
    return any(
        guard.node in model.tree.ancestors(one.node)
        and one.node not in around
        and order[one.node] < order[node]
        for one in model.once(_over_device_loaders)
    )


def _over_device_loaders(model: FileModel) -> list[Loop]:
    return [loop for loop in model.loops if loop.iterates.kind is Kind.DEVICE_LOADER]


def _of_evaluation(model: FileModel, tensor: cst.BaseExpression) -> bool:
    """``loss = validate(model)``: what a loop over other batches gave is no part of the step.

    A device loader ends the graph of each batch, and with the first one that of the step.
    """
    loops = [x for x in model.loops_of_program if x.kind is LoopKind.EVAL and not x.implicit]
    over = (x for x in loops if x.iterates.kind is Kind.DEVICE_LOADER)
    evaluating = {loop.function for loop in over} - {None}
    named = (part for part in walk(tensor) if isinstance(part, cst.Name))
    made = (one for name in named for one in model.assigned_to(name))
    return any(isinstance(x, cst.Call) and model.call(x).target in evaluating for x in made)


def _every_so_often(
    model: FileModel, node: cst.CSTNode, depth: int = _HELPERS
) -> tuple[Guard, cst.CSTNode] | None:
    """The condition with a remainder in it, not one for the first or last step.

    And what stands under it: the node, or the call of the helper that reads (which runs no model,
    goes over no batches and ends no graph, so that what it reads is of the step).
    """
    guard = next((g for g in model.guards(node) if _asks_remainder(model, g.test)), None)
    function = model.function_of(node)
    if guard is not None or function is None or depth == 0:
        return None if guard is None else (guard, node)
    if any(one.function is function and one.kind in HOT for one in model.loops):
        return None
    for call in model.reached(function.node):
        if model.effects.ends_graph(call) or model.value(call.node.func).kind is Kind.MODEL:
            return None
    callers = [call.node for call in model.callers(function) if model.is_here(call.node)]
    due = (_every_so_often(model, call, depth - 1) for call in callers)
    return next((one for one in due if one is not None), None)


def _asks_remainder(model: FileModel, test: cst.BaseExpression, depth: int = 2) -> bool:
    """``step % 50 == 0``, and ``due and loud`` where ``due`` is that."""
    if "%" in model.tree.text(test):
        return True
    kinds = (cst.Name, cst.Attribute)
    names = (part for part in walk(test) if isinstance(part, kinds)) if depth else ()
    made = (model.assigned_once(name) for name in names)
    return any(
        isinstance(one, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation)
        and _asks_remainder(model, one, depth - 1)
        for one in made
    )
