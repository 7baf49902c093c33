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
from xladoctor.lint.rules._reads import costly_loop, loop_place
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.events import Event
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: What may not run, or not as often as what stands behind it.
_BLOCKS = (cst.If, cst.Else, cst.For, cst.While, cst.Try, cst.ExceptHandler)
#: Methods whose result has no gradient, and attributes that are no tensor of the graph.
_DETACHED = frozenset({"detach", "item", "state_dict", "size", "argmax", "long"})
_ASKED = frozenset({"shape", "device", "dtype", "data"})
#: Words of names of places, lengths and masks: what is taken by them is not computed of them.
_WHOLE_NUMBERS = frozenset(
    [
        *("id", "ids", "idx", "idxs", "index", "indices", "mask", "masks"),
        *("len", "lens", "length", "lengths"),
    ]
)


_ENDS = ("torch_xla.core.xla_model.mark_step", "torch_xla.sync")
_COSTS = (
    "whatever the backward pass needs becomes an output of the one graph and an input of the "
    "other, and nothing is fused or freed across them"
)
_CUT = f"the graph ends between the forward and the backward pass: {_COSTS}"
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
        ends = model.effects.ends_between(forward.node, event.node, loop)
        for end in (*ends, *_behind_model(model, forward)):
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
    for event in model.effects.of(Effect.GRAPH_END):
        layers = _within_forward(model, event) if event.node not in seen else None
        loop = costly_loop(model, event.node) if layers is not None else None
        if layers is None or loop is None or loop.kind is not LoopKind.STEP:
            continue
        yield model.problem(
            event.node,
            f"the graph ends in the middle of the forward pass: {_COSTS}",
            suggestion=_ONCE,
            related=[
                model.place(layers[0].node, "what it computes before"),
                model.place(layers[1].node, "what it computes behind it"),
                loop_place(model, loop),
            ],
        )


def _within_forward(model: FileModel, event: Event) -> tuple[CallSite, CallSite] | None:
    """The layers before and behind an end of the graph in a model's ``forward`` that learns."""
    function = event.call.function if event.call is not None else None
    owner = function.owner if function is not None else None
    if function is None or owner is None or function.name != "forward":
        return None
    learns = not model.in_no_grad(event.node) and not _without_gradient(model, function)
    if not learns or not model.is_module(owner) or not _in_training(model, event.node):
        return None
    order = model.tree.order
    layers = [x for x in model.calls_of(function) if _runs_model(model, x) and _learns(model, x)]
    before = [layer for layer in layers if order[layer.node] < order[event.node]]
    behind = [layer for layer in layers if order[layer.node] > order[event.node]]
    return (before[-1], behind[0]) if before and behind else None


def _without_gradient(model: FileModel, function: Function) -> bool:
    """Whether all calls of a function that are in sight stand in ``torch.no_grad()``."""
    calls = model.callers(function)
    return bool(calls) and all(model.in_no_grad(call.node) for call in calls)


def _in_training(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether each training step comes to a node of ``forward``: ``if self.training:`` may ask."""
    return all(
        guard.runs is OnXla.YES
        or (guard.when and model.tree.text(guard.test).strip() == "self.training")
        for guard in model.guards(node)
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


def _behind_model(model: FileModel, forward: CallSite) -> Iterator[cst.CSTNode]:
    """The ends of the graph in a function that runs the model and gives back its loss."""
    order = model.tree.order
    for function in _functions(model, forward):
        calls = model.calls_of(function)
        runs = (one for one in calls if _runs_model(model, one) and _learns(model, one))
        first = next(runs, None)
        for end in calls if first is not None else ():
            if end.name in _ENDS and first is not None and order[end.node] > order[first.node]:
                yield end.node


def _functions(model: FileModel, call: CallSite) -> Sequence[Function]:
    """The functions of the file that a call may run: ``step = micro if args.micro else whole``."""
    may_run = {call.target, *model.value(call.node.func).functions}
    return [function for function in model.functions if function in may_run]


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
        for call in _computed_of(model, loss)
        if order[call.node] < order[passes[-1].node]
        and (loop.implicit or loop.node in model.tree.ancestors(call.node))
        and not any(_takes_gradient(model, other, call) for other in passes)
    ]
    return min(found, key=lambda call: order[call.node]) if found else None


def _computed_of(model: FileModel, start: cst.BaseExpression) -> Iterator[CallSite]:
    """The calls of models whose results an expression is computed of, through names."""
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
                waiting += _given(model, part)


def _given(model: FileModel, name: cst.Name) -> Iterator[cst.BaseExpression]:
    """What a name may have been assigned where it stands, the last of it first.

    Also as one of several (``fake, latents = generator(noise)``), and what is added to it.
    """
    order, around = model.tree.order, set(model.tree.ancestors(name))
    bound = [
        (item, line)
        for item in model.bindings(name.value, name)
        if (line := _line_of(model, item.node)) is not None
        and line not in around
        and order.get(line, order[name]) < order[name]
    ]
    for item, line in sorted(bound, key=lambda pair: -order[pair[1]]):
        given = line.value if isinstance(line, cst.AugAssign) else model.assigned_by(item)
        part = model.taken(item.node) if item.kind == "other" else None
        for place in part.places if part is not None else ():
            if not isinstance(given, cst.Tuple | cst.List) or len(given.elements) <= place:
                break
            if any(isinstance(one, cst.StarredElement) for one in given.elements):
                break
            given = given.elements[place].value
        if given is not None:
            yield given
        inner = (one for one in model.tree.ancestors(line) if one not in around)
        if isinstance(line, cst.Assign) and not any(isinstance(one, _BLOCKS) for one in inner):
            return  # whatever it was before is gone


def _line_of(model: FileModel, node: cst.CSTNode) -> cst.CSTNode | None:
    """The assignment that a binding stands in."""
    lines = (cst.Assign, cst.AugAssign, cst.AnnAssign)
    return next((one for one in model.tree.ancestors(node) if isinstance(one, lines)), None)


def _attached(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of an expression but for those that no gradient goes through."""
    func = node.func if isinstance(node, cst.Call) else None
    method = func.attr.value if isinstance(func, cst.Attribute) else ""
    if method in _DETACHED or method.endswith("_like"):
        return
    if isinstance(node, cst.Attribute) and node.attr.value in _ASKED:
        return
    if isinstance(node, cst.Name) and words(node.value) & _WHOLE_NUMBERS:
        return
    yield node
    inner = [node.value] if isinstance(node, cst.Subscript) else children(node)
    for child in inner:
        yield from _attached(child)


def _takes_gradient(model: FileModel, earlier: Event, forward: CallSite) -> bool:
    """Whether an earlier backward pass goes through a forward pass too: it is another matter."""
    loss = earlier.call.receiver if earlier.call is not None else None
    return loss is not None and any(call.node is forward.node for call in _computed_of(model, loss))


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
    return not model.in_no_grad(call.node)


def _always(model: FileModel, end: cst.CSTNode, backward: cst.CSTNode) -> bool:
    """Whether whoever comes to the backward pass comes to the end of the graph first."""
    asked = {(guard.node, guard.when) for guard in model.guards(backward)}
    # ``if is_tpu:`` around the end of the graph holds on XLA devices.
    return all(
        (guard.node, guard.when) in asked or guard.runs is OnXla.YES for guard in model.guards(end)
    )
