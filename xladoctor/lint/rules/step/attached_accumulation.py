"""XLA315: a running sum of losses that keeps every step's autograd history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, LoopKind, walk
from xladoctor.lint.model.dotted import dotted_text, is_name
from xladoctor.lint.model.turns import counts_micro_steps
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._carried import carried
from xladoctor.lint.rules._gradients import in_no_grad
from xladoctor.lint.rules._made_losses import assigned, outputs_of_models
from xladoctor.lint.rules._reads import loop_place, snippet
from xladoctor.lint.rules._sources import made_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: Methods whose result a library calls ``backward`` of.
_GIVES_LOSS = frozenset({"training_step", "compute_loss"})


@rule("XLA315")
def attached_accumulation(model: FileModel) -> Iterator[Problem]:
    """Find sums and lists over steps of a loss that ``backward`` was called on, and of outputs."""
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
        losses |= _given_back(model, loop, backward)
        yield from _in_loop(model, loop, losses, sources)
    for loop in model.loops:
        if loop.kind is LoopKind.STEP and loop.implicit and loop.function is not None:
            yield from _in_hook(model, loop, loop.function)
    for function in model.functions:
        # The step is a function: what it is given and gives back goes on.
        own = [(call, loss) for call, loss in backward if call.function is function]
        losses = _losses(model, [loss for call, loss in own if model.loop(call.node) is None])
        nodes = list(walk(function.node, into_functions=False)) if losses else []
        for node in nodes:
            found = _accumulates(model, node, losses)
            if found is not None and found[1] not in sources and model.loop(node) is None:
                call = carried(model, function, found[1])
                yield from _in_calls(model, () if call is None else (call,), node, found)
            own_sum = _own_sum(model, function, nodes, node, losses)
            if own_sum is not None and model.loop(node) is None:
                yield from _in_calls(model, model.callers(function), node, own_sum)


def _in_hook(model: FileModel, loop: Loop, function: Function) -> Iterator[Problem]:
    """The losses that a module or a Trainer gives its library for the backward pass, and keeps."""
    if function.name not in _GIVES_LOSS:
        return
    nodes = list(walk(function.node, into_functions=False))
    given = [node.value for node in nodes if isinstance(node, cst.Return) and node.value]
    by_hand = (call for call in model.methods("manual_backward") if call.function is function)
    given += [loss for call in by_hand if (loss := call.argument(0, "loss")) is not None]
    losses = _losses(model, [part for value in given for part in _loss_of(model, value)])
    for node in nodes if losses else []:
        own_sum = _own_sum(model, function, nodes, node, losses)
        if own_sum is not None:
            yield from _problem(model, loop, node, *own_sum)
        if isinstance(node, cst.Call):
            for loss, total in _kept_by_object(model, model.call(node), losses):
                yield from _problem(model, loop, loss, loss, total)


def _loss_of(model: FileModel, given: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The loss in what is given back: ``loss``, ``{"loss": loss}``, ``(loss, outputs)``."""
    if isinstance(given, cst.Dict):
        pairs = [item for item in given.elements if isinstance(item, cst.DictElement)]
        return [item.value for item in pairs if model.literal(item.key) == "loss"]
    if isinstance(given, cst.IfExp):
        return [*_loss_of(model, given.body), *_loss_of(model, given.orelse)]
    if isinstance(given, cst.Tuple) and given.elements:
        return [given.elements[0].value]
    return [given]


def _in_calls(
    model: FileModel, calls: Iterable[CallSite], node: cst.CSTNode, found: tuple[cst.Name, str]
) -> Iterator[Problem]:
    """A sum that a function keeps from one of its calls to the next, where a step loop calls it."""
    around = (model.loop(call.node) for call in calls)
    loop = next((one for one in around if one is not None and one.kind is LoopKind.STEP), None)
    if loop is not None:
        yield from _problem(model, loop, node, *found)


def _in_loop(
    model: FileModel, loop: Loop, losses: set[str], sources: set[str]
) -> Iterator[Problem]:
    """Sums and lists that a loop keeps, by itself or in an object of the program."""
    nodes = list(walk(loop.node, into_functions=False)) if losses else []
    outputs = outputs_of_models(model, nodes, losses)
    for node in nodes:
        if model.loop(node) is not loop:
            continue
        found = _accumulates(model, node, losses)
        if found is None and isinstance(node, cst.Expr):
            found = _accumulates(model, node, outputs)
        if found is not None and found[1] in sources | _emptied(nodes, node, found[1]):
            continue  # it is what goes backward, or keeps the last few
        if found is not None and not _of_one_step(model, loop):
            yield from _problem(model, loop, node, *found)
        own_sum = _own_sum(model, loop.function, nodes, node, losses)
        if own_sum is not None:
            yield from _problem(model, loop, node, *own_sum)
        if isinstance(node, cst.Call):
            call = model.call(node)
            for loss, total in _kept_by_object(model, call, losses):
                if not _begins_anew(nodes, call):
                    yield from _problem(model, loop, loss, loss, total)


def _of_one_step(model: FileModel, loop: Loop) -> bool:
    """Whether all turns of a loop belong to one step, so that what a name sums up ends with it.

    The critics of a GAN, each with its loss: ``for critic in (one, other):``. And the batches of
    which one step adds up the gradients.
    """
    if isinstance(loop.node, cst.For):
        over = loop.node.iter
        if isinstance(over, cst.Tuple | cst.List) or counts_micro_steps(over, model.name):
            return True
    callers = model.callers(loop.function) if loop.function is not None else ()
    around = (model.loop(call.node) for call in callers)
    return any(one is not None and one.kind is LoopKind.STEP for one in around)


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


def _given_back(
    model: FileModel, loop: Loop, backward: list[tuple[CallSite, cst.BaseExpression]]
) -> set[str]:
    """The names that ``loss, outputs = step(model, batch)`` gives to losses, with their history."""
    found: set[str] = set()
    for node in walk(loop.node, into_functions=False):
        if not isinstance(node, cst.Assign) or model.loop(node) is not loop:
            continue
        step = model.call(node.value).target if isinstance(node.value, cst.Call) else None
        places = _returned(model, step, backward) if isinstance(step, Function) else ()
        target = node.targets[0].target
        given = (
            [(at, one.value) for at, one in enumerate(target.elements)]
            if isinstance(target, cst.Tuple)
            else [(None, target)]
        )
        found |= {
            name.value
            for at, name in given
            if at in places and isinstance(name, cst.Name) and model.value(name).is_device_tensor
        }
    return found


def _returned(
    model: FileModel, step: Function, backward: list[tuple[CallSite, cst.BaseExpression]]
) -> set[int | None]:
    """Where a function gives back what it called ``backward`` of: places in a tuple, or None."""
    own = {
        loss.value: call
        for call, loss in backward
        if call.function is step and isinstance(loss, cst.Name)
    }
    nodes = list(walk(step.node.body, into_functions=False)) if own else []
    order = model.tree.order
    for node in nodes:  # ``loss = loss.detach()`` behind it
        for name in _bound(node):
            if name in own and order[node] > order[own[name].node]:
                del own[name]
    places: set[int | None] = set()
    for node in nodes:
        value = node.value if isinstance(node, cst.Return) else None
        parts = value.elements if isinstance(value, cst.Tuple) else ()
        given = [(None, value), *((at, one.value) for at, one in enumerate(parts))]
        places |= {at for at, one in given if isinstance(one, cst.Name) and one.value in own}
    return places


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
    model: FileModel, node: cst.CSTNode, losses: set[str], of: str | None = None
) -> tuple[cst.Name, str] | None:
    """The loss that a statement adds, and the name of what it adds it to.

    Args:
        model: The file.
        node: The statement.
        losses: The names of losses.
        of: What the total is an attribute of; None for a plain name.
    """
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        loss, total = _bare(node.value, losses), _plain(node.target, of)
        if loss is not None and total is not None:
            return loss, total
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        total = _plain(node.targets[0].target, of)
        if total is not None and (of is not None or total not in losses):
            sums = (part for part in walk(node.value) if isinstance(part, cst.BinaryOperation))
            for part in sums:
                if isinstance(part.operator, cst.Add) and _plain(part.left, of) == total:
                    loss = _bare(part.right, losses)
                    if loss is not None:
                        return loss, total
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        call = model.call(node.value)
        if call.target is not None:
            return None  # a class of the program's own, which may keep numbers alone
        if call.method in {"append", "extend"} and call.receiver is not None and call.positional:
            items = _kept_items(call.positional[0], whole=call.method == "append")
            item = next((one for one in items if one.value in losses), None)
            total = _holder(model, call.receiver, of)
            if item is not None and total is not None:
                return item, total
    return None


def _kept_items(item: cst.BaseExpression, *, whole: bool) -> list[cst.Name]:
    """The names in what a list is given: ``loss``, ``(d_loss, g_loss)``, ``{"loss": loss}``."""
    if isinstance(item, cst.Name):
        return [item] if whole else []
    if isinstance(item, cst.Dict) and whole:
        values = [one.value for one in item.elements if isinstance(one, cst.DictElement)]
    elif isinstance(item, cst.Tuple | cst.List):
        values = [one.value for one in item.elements if isinstance(one, cst.Element)]
    else:
        values = []
    return [value for value in values if isinstance(value, cst.Name)]


def _holder(model: FileModel, node: cst.BaseExpression, of: str | None) -> str | None:
    """The list that something is put into: ``losses``, ``history["loss"]``, of no given length."""
    if made_in(model, node, ("collections.deque",)) is not None:
        return None
    if isinstance(node, cst.Subscript) and _plain(node.value, of) is not None:
        text = model.tree.text(node).strip()
        return text if of is None else text.removeprefix(f"{of}.")
    return _plain(node, of)


def _plain(node: cst.BaseExpression, of: str | None) -> str | None:
    """The name that an expression is, or the attribute of such a holder."""
    if of is None:
        return node.value if isinstance(node, cst.Name) else None
    if isinstance(node, cst.Attribute) and is_name(node.value, of):
        return node.attr.value
    return None


def _own_sum(
    model: FileModel,
    function: Function | None,
    nodes: list[cst.CSTNode],
    node: cst.CSTNode,
    losses: set[str],
) -> tuple[cst.Name, str] | None:
    """``self.total += loss``, where nothing sets that attribute anew in the nodes."""
    if function is None or function.owner is None or function.is_static:
        return None
    of = next(iter(function.parameters), None)
    found = _accumulates(model, node, losses, of) if of is not None else None
    if of is None or found is None or any(_sets(other, of, found[1], node) for other in nodes):
        return None
    return found[0], f"{of}.{found[1]}"


def _sets(node: cst.CSTNode, of: str, name: str, sums: cst.CSTNode) -> bool:
    """Whether a node gives an attribute another value than the sum."""
    targets = node.targets if isinstance(node, cst.Assign) and node is not sums else ()
    return any(_plain(one.target, of) == name for one in targets)


def _kept_by_object(
    model: FileModel, call: CallSite, losses: set[str]
) -> Iterator[tuple[cst.Name, str]]:
    """``meter.update(loss)`` of an object of the program that adds it to what it has: the loss."""
    method = call.target
    if not isinstance(method, Function) or method.owner is None or method.is_static:
        return
    for index, given in enumerate(call.positional):
        parameters = method.parameters[1:]
        if isinstance(given, cst.Name) and given.value in losses and index < len(parameters):
            total = _total(model, method, parameters[index])
            if total is not None and call.receiver is not None:
                yield given, f"{model.tree.text(call.receiver).strip()}.{total}"
            return


def _total(model: FileModel, method: Function, name: str) -> str | None:
    """The attribute to which a method adds a parameter as it comes, each time."""
    nodes = list(walk(method.node.body, into_functions=False))
    if any(target == name for node in nodes for target in _bound(node)):
        return None  # ``if torch.is_tensor(value): value = value.item()``
    if any(isinstance(node, cst.Del) or _takes_out(node) for node in nodes):
        return None  # a window: it keeps the last few
    for node in nodes:
        found = _accumulates(model, node, {name}, of=method.parameters[0])
        if found is not None:
            return None if model.throttled(node) or in_no_grad(model, node) else found[1]
    return None


def _emptied(nodes: list[cst.CSTNode], node: cst.CSTNode, total: str) -> set[str]:
    """The list itself, if a loop makes it anew or takes something out of it."""
    root = total.partition("[")[0]
    emptied = {f"{root}.clear", f"{root}.pop", f"{root}.popleft"}
    again = isinstance(node, cst.Expr) and any(
        root in _bound(other)
        or (isinstance(other, cst.Call) and dotted_text(other.func) in emptied)
        for other in nodes
    )
    return {total} if again else set()


def _takes_out(node: cst.CSTNode) -> bool:
    """``self.kept.pop(0)``."""
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and func.attr.value in {"pop", "popleft"}


def _bound(node: cst.CSTNode) -> Iterator[str]:
    return (name for name, _ in assigned(node))


def _begins_anew(nodes: list[cst.CSTNode], call: CallSite) -> bool:
    """Whether the object is made, or emptied, in each turn of the loop."""
    holder = call.receiver
    text = dotted_text(holder) if holder is not None else None
    root = (text or "").partition(".")[0]
    emptied = {f"{text}.reset", f"{text}.clear"}
    return text is None or any(
        root in _bound(node) or (isinstance(node, cst.Call) and dotted_text(node.func) in emptied)
        for node in nodes
    )


def _bare(node: cst.BaseExpression, losses: set[str]) -> cst.Name | None:
    """The loss in an expression of numbers, if nothing cuts its history."""
    if isinstance(node, cst.BinaryOperation):
        return _bare(node.left, losses) or _bare(node.right, losses)
    return node if isinstance(node, cst.Name) and node.value in losses else None
