"""XLA319: the graph ends between the forward pass and its backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import Function, Kind, LoopKind, OnXla
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.syntax import children
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._gradients import in_no_grad
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.events import Event
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


_ENDS = ("torch_xla.core.xla_model.mark_step", "torch_xla.sync")
_CUT = (
    "the graph ends between the forward and the backward pass: whatever the backward pass needs "
    "becomes an output of the one graph and an input of the other, and nothing is fused or freed "
    "across them"
)
_ONCE = "end the graph once per step, after the optimizer"


@rule("XLA319")
def graph_cut_in_step(model: FileModel) -> Iterator[Problem]:
    """Find ends of the graph behind the model's call and before ``backward`` in step loops."""
    if not model.is_xla:
        return
    yield from _in_loss_of_trainer(model)
    seen: set[cst.CSTNode] = set()
    for event in model.effects.of(Effect.BACKWARD):
        loop = costly_loop(model, event.node)
        if loop is None or loop.kind is not LoopKind.STEP or event.call is None:
            continue
        forward = _carried(model, event, loop) or _forward(model, event, loop)
        if forward is None:
            continue
        for end in model.effects.ends_between(forward.node, event.node, loop):
            if end in seen or not _always(model, end, event.node):
                continue
            if forward.node in model.tree.ancestors(end):
                continue  # ``model(next(batches))``: it ends before the model is called
            seen.add(end)
            yield model.problem(
                end,
                _CUT,
                suggestion=_ONCE,
                related=[
                    model.place(forward.node, "the forward pass"),
                    model.place(event.node, "its backward pass"),
                    loop_place(model, loop),
                ],
            )


def _in_loss_of_trainer(model: FileModel) -> Iterator[Problem]:
    """``xm.mark_step()`` in the ``compute_loss`` of a Trainer, which then goes backward itself."""
    for end in model.calls(*_ENDS):
        loop = costly_loop(model, end.node)
        within = loop.function if loop is not None and loop.implicit else None
        owner = within.owner if within is not None else None
        if loop is None or within is None or owner is None or within.name != "compute_loss":
            continue
        if not model.is_trainer(owner) or not _only_on_xla(model, end):
            continue
        forward = next(
            (
                call
                for call in model.calls_of(end.function)
                if in_order(model, call.node, end.node)
                and call.node is not end.node
                and _runs_model(model, call)
                and _learns(model, call)
            ),
            None,
        )
        if forward is not None:
            yield model.problem(
                end.node,
                _CUT,
                suggestion=_ONCE,
                related=[
                    model.place(forward.node, "the forward pass"),
                    model.place(within.node, "the Trainer takes the gradient of what this returns"),
                ],
            )


def _only_on_xla(model: FileModel, end: CallSite) -> bool:
    """``if is_torch_xla_available():`` around the end of a graph says nothing more."""
    return all(guard.runs is OnXla.YES for guard in model.guards(end.node))


def _forward(model: FileModel, event: Event, loop: Loop) -> CallSite | None:
    """The last call of a model before a backward pass, whose gradient that is."""
    assert event.call is not None
    order, function = model.tree.order, event.call.function
    last: CallSite | None = None
    for call in model.calls_of(function):
        if order[call.node] >= order[event.node]:
            continue
        if call.method in {"backward", "manual_backward"}:
            last = None
        elif _runs_model(model, call) and _learns(model, call):
            last = call
    inside = last is not None and (
        loop.implicit
        or loop.function is not function
        or loop.node in model.tree.ancestors(last.node)
    )
    return last if inside else None


def _carried(model: FileModel, event: Event, loop: Loop) -> CallSite | None:
    """``fake = g(z)`` before the discriminator's step, whose gradient is taken behind that.

    The earliest call of a model that a loss is computed of, where another backward pass stands
    between the two: what is detached on the way does not count.
    """
    assert event.call is not None
    order, function = model.tree.order, event.call.function
    passes = [
        other
        for other in model.effects.of(Effect.BACKWARD)
        if other.call is not None
        and other.call.function is function
        and order[other.node] < order[event.node]
        and not opposed(model.guards(other.node), model.guards(event.node))
    ]
    loss = event.call.receiver
    if not passes or loss is None:
        return None
    found = [
        call
        for call in _computed_of(model, loss, event.node)
        if order[call.node] < order[passes[-1].node]
        and (loop.implicit or loop.node in model.tree.ancestors(call.node))
        and not any(_takes_gradient(model, other, call) for other in passes)
    ]
    return min(found, key=lambda call: order[call.node]) if found else None


def _computed_of(
    model: FileModel, start: cst.BaseExpression, until: cst.CSTNode
) -> Iterator[CallSite]:
    """The calls of models whose results an expression is computed of, through names."""
    order = model.tree.order
    waiting: list[cst.CSTNode] = [start]
    seen: set[cst.CSTNode] = set()
    while waiting:
        for part in _attached(waiting.pop()):
            if part in seen:
                continue
            seen.add(part)
            if isinstance(part, cst.Call):
                call = model.call(part)
                if _runs_model(model, call) and _learns(model, call):
                    yield call
            elif isinstance(part, cst.Name):
                before = [
                    one for one in model.assigned_to(part) if order.get(one, 0) < order[until]
                ]
                waiting += before


def _attached(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of an expression but for what it detaches."""
    func = node.func if isinstance(node, cst.Call) else None
    method = func.attr.value if isinstance(func, cst.Attribute) else ""
    if method in {"detach", "item", "state_dict"}:
        return
    yield node
    for child in children(node):
        yield from _attached(child)


def _takes_gradient(model: FileModel, earlier: Event, forward: CallSite) -> bool:
    """Whether an earlier backward pass goes through a forward pass too: it is another matter."""
    loss = earlier.call.receiver if earlier.call is not None else None
    return loss is not None and any(
        call.node is forward.node for call in _computed_of(model, loss, earlier.node)
    )


def _runs_model(model: FileModel, call: CallSite) -> bool:
    """A call of a model, or of a function that gives back what a model gave."""
    if model.value(call.node.func).kind is Kind.MODEL:
        return True
    owner = call.function.owner if call.function is not None else None
    if call.method == "compute_loss" and owner is not None:
        # A Trainer's own, or one that gives back the outputs too where it is asked for them.
        return model.is_trainer(owner)
    if not isinstance(call.target, Function) or not model.value(call.node).holds_device_tensor:
        return False
    inner = model.reached(call.target.node)
    return any(model.value(x.node.func).kind is Kind.MODEL and _learns(model, x) for x in inner)


def _learns(model: FileModel, call: CallSite) -> bool:
    """Whether a call is not within ``torch.no_grad()``, and its result is not detached."""
    parent = model.parent(call.node)
    if isinstance(parent, cst.Attribute) and parent.attr.value == "detach":
        return False
    return not in_no_grad(model, call.node)


def _always(model: FileModel, end: cst.CSTNode, backward: cst.CSTNode) -> bool:
    """Whether whoever comes to the backward pass comes to the end of the graph first."""
    asked = {(guard.node, guard.when) for guard in model.guards(backward)}
    # ``if is_tpu:`` around the end of the graph holds on XLA devices.
    return all(
        (guard.node, guard.when) in asked or guard.runs is OnXla.YES for guard in model.guards(end)
    )
