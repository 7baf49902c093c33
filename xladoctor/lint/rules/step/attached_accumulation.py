"""XLA315: a running sum of losses that keeps every step's autograd history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, LoopKind, walk
from xladoctor.lint.model.dotted import paired
from xladoctor.lint.model.helpers import losses_in, returned
from xladoctor.lint.model.taken import names_set
from xladoctor.lint.model.turns import counts_micro_steps
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._carried import carried
from xladoctor.lint.rules._history import History, history_of, text_of
from xladoctor.lint.rules._kept_sums import Kept, begins_anew, kept, made_anew
from xladoctor.lint.rules._protocol import takes_step
from xladoctor.lint.rules._reads import loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Class, FileModel, Loop, Problem

    #: The call of a backward pass, and what it goes back from.
    _Pass = tuple[CallSite, cst.BaseExpression]

#: Methods whose result a library calls ``backward`` of.
_GIVES_LOSS = frozenset({"training_step", "compute_loss"})


@rule("XLA315")
def attached_accumulation(model: FileModel) -> Iterator[Problem]:
    """Find sums and lists over steps of what ``backward`` was called on, and what it is made of."""
    if not model.is_xla:
        return
    passes = _Passes(model)
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP:
            continue
        if not loop.implicit:
            yield from _in_loop(model, loop, _of_loop(model, loop, passes))
        elif loop.function is not None:
            yield from _in_hook(model, loop, loop.function)
    for function in model.functions:
        # The step is a function: what it is given and gives back goes on.
        own = passes.by_function.get(function, ())
        if any(model.loop(call.node) is None for call, _ in own):
            losses = [loss for _, loss in own]
            yield from _in_step(model, function, history_of(model, losses))


class _Passes:
    """The backward passes of a file, each as its call and what it goes back from."""

    def __init__(self, model: FileModel) -> None:
        self.by_function: dict[Function | None, list[_Pass]] = {}
        self.by_class: dict[Class | None, list[_Pass]] = {}
        self.by_loop: dict[Loop | None, list[_Pass]] = {}
        for one in _backward_calls(model):
            call, _ = one
            owner = None if call.function is None else call.function.owner
            self.by_function.setdefault(call.function, []).append(one)
            self.by_class.setdefault(owner, []).append(one)
            self.by_loop.setdefault(model.loop(call.node), []).append(one)


def _of_loop(model: FileModel, loop: Loop, passes: _Passes) -> History:
    """What has a history in a loop: of its own losses, and of those that its functions give back.

    Attributes of the loop's object too (``self.loss``), whichever method goes backward.
    """
    found = history_of(model, [loss for _, loss in passes.by_loop.get(loop, ())])
    for node in walk(loop.node, into_functions=False):
        if isinstance(node, cst.Call) and model.loop(node) is loop:
            found.carries |= _given_back(model, node, passes)
    owner = None if loop.function is None else loop.function.owner
    if owner is not None:
        reached = {call.node for call in model.reached(loop.node)}
        for call, loss in passes.by_class.get(owner, ()):
            if call.node in reached:
                of_object = history_of(model, [loss])
                found.add(
                    History(
                        {one for one in of_object.carries if one.startswith("self.")},
                        {one for one in of_object.parts if one.startswith("self.")},
                    )
                )
    return found


def _in_loop(model: FileModel, loop: Loop, history: History) -> Iterator[Problem]:
    """Sums and lists that a loop keeps, by itself or in an object of the program."""
    nodes = list(walk(loop.node, into_functions=False)) if history.carries else []
    entries = _entries(model, nodes, history)
    for node in nodes:
        around = model.loop(node)
        if around is not loop and (around is None or around.node not in entries):
            continue
        carries = history.carries if around is loop else entries[around.node]
        found = kept(model, node, carries)
        if found is not None and _goes_on(model, loop, nodes, node, found, history):
            yield from _problem(model, loop, node, found)
        if isinstance(node, cst.Call):
            call = model.call(node)
            for one in _kept_by_object(model, call, history.carries):
                if not made_anew(nodes, call):
                    yield from _problem(model, loop, one.tensor, one)


def _entries(
    model: FileModel, nodes: list[cst.CSTNode], history: History
) -> dict[cst.CSTNode, set[str]]:
    """What loops over a dictionary of losses call them: ``for name, loss in stats.items()``."""
    found: dict[cst.CSTNode, set[str]] = {}
    for node in nodes:
        over = node.iter if isinstance(node, cst.For) else None
        if not isinstance(node, cst.For) or not isinstance(over, cst.Call):
            continue
        func, target = over.func, node.target
        if isinstance(func, cst.Attribute) and func.attr.value in {"items", "values"}:
            held = f"{text_of(model, func.value)}["
            value = target.elements[-1].value if isinstance(target, cst.Tuple) else target
            if any(one.startswith(held) for one in history.carries):
                found[node] = {text_of(model, value)}
    return found


def _goes_on(
    model: FileModel,
    loop: Loop,
    nodes: list[cst.CSTNode],
    node: cst.CSTNode,
    found: Kept,
    history: History,
) -> bool:
    """Whether what a loop adds up lives on, and is not what goes backward."""
    if found.root in history.parts or begins_anew(model, nodes, node, found):
        return False
    if _begins_with_step(model, loop, node, found):
        return False
    return found.root.startswith("self.") or not _of_one_step(model, loop)


def _begins_with_step(model: FileModel, loop: Loop, node: cst.CSTNode, found: Kept) -> bool:
    """Whether a loop goes over the parts of a batch, and the loop of steps around sets the sum.

    ``for batch in loader: total = 0``, then ``for part in split(batch): total += loss``, and the
    optimizer's step behind the inner loop alone.
    """
    around = model.loop(loop.node)
    if (
        around is None
        or around.implicit
        or any(takes_step(model, x) for x in model.reached(loop.node))
    ):
        return False
    nodes = list(walk(around.node, into_functions=False))
    own = (model.call(x) for x in nodes if isinstance(x, cst.Call) and model.loop(x) is around)
    return any(takes_step(model, call) for call in own) and begins_anew(model, nodes, node, found)


def _in_step(model: FileModel, function: Function, history: History) -> Iterator[Problem]:
    """A sum that a function keeps from one of its calls to the next, where a step loop calls it."""
    nodes = list(walk(function.node, into_functions=False)) if history.carries else []
    for node in nodes:
        found = kept(model, node, history.carries) if model.loop(node) is None else None
        if found is None or found.root in history.parts or begins_anew(model, nodes, node, found):
            continue
        for call in _calls_that_keep(model, function, found, node):
            loop = model.loop(call.node)
            if loop is not None and loop.kind is LoopKind.STEP:
                yield from _problem(model, loop, node, found)
                break


def _calls_that_keep(
    model: FileModel, function: Function, found: Kept, node: cst.CSTNode
) -> Iterator[CallSite]:
    """The calls of a function after which a total lives on."""
    root = found.root.partition(".")[0]
    if function.is_bound and root == next(iter(function.parameters), None):
        yield from model.callers(function) if "." in found.root else ()
        return
    if root not in function.parameters:
        return
    if found.total == root and not isinstance(node, cst.Expr):  # a sum has to be given back
        call = carried(model, function, root)
        yield from () if call is None else (call,)
        return
    for call in model.callers(function):
        loop, given = model.loop(call.node), call.given_to(function, root)
        inside = walk(loop.node, into_functions=False) if loop is not None else ()
        anew = {name for line in inside for name in names_set(line)}
        if isinstance(given, cst.Name | cst.Attribute):
            yield from () if text_of(model, given).partition(".")[0] in anew else (call,)


def _in_hook(model: FileModel, loop: Loop, function: Function) -> Iterator[Problem]:
    """The losses that a module or a Trainer gives its library for the backward pass, and keeps."""
    if function.name not in _GIVES_LOSS:
        return
    nodes = list(walk(function.node, into_functions=False))
    given = [node.value for node in nodes if isinstance(node, cst.Return) and node.value]
    by_hand = (call for call in model.methods("manual_backward") if call.function is function)
    given += [loss for call in by_hand if (loss := call.argument(0, "loss")) is not None]
    history = history_of(model, [part for value in given for part in losses_in(value)])
    for node in nodes if history.carries else []:
        found = kept(model, node, history.carries)
        own = found is not None and found.root.startswith(f"{function.parameters[0]}.")
        if found is not None and own and not begins_anew(model, nodes, node, found):
            yield from _problem(model, loop, node, found)
        if isinstance(node, cst.Call):
            for one in _kept_by_object(model, model.call(node), history.carries):
                yield from _problem(model, loop, one.tensor, one)


def _of_one_step(model: FileModel, loop: Loop) -> bool:
    """Whether all turns of a loop belong to one step, so that what a name sums up ends with it.

    The critics of a GAN, each with its loss: ``for critic in (one, other):``. The batches of which
    one step adds up the gradients, and the parts of a batch in a framework's ``training_step``.
    """
    if isinstance(loop.node, cst.For):
        over = loop.node.iter
        if isinstance(over, cst.Tuple | cst.List) or counts_micro_steps(over, model.name):
            return True
    if loop.function is not None and any(
        one.implicit and one.kind is LoopKind.STEP and one.function is loop.function
        for one in model.loops
    ):
        return True
    callers = model.callers(loop.function) if loop.function is not None else ()
    around = (model.loop(call.node) for call in callers)
    return any(one is not None and one.kind is LoopKind.STEP for one in around)


def _problem(model: FileModel, loop: Loop, node: cst.CSTNode, found: Kept) -> Iterator[Problem]:
    if model.throttled(node) or model.in_no_grad(node):
        return
    detached = f"{text_of(model, found.tensor)}.detach()"
    yield model.problem(
        node,
        f"{snippet(model, found.tensor)} carries its autograd history: `{found.total}` keeps that "
        "of every step, and memory grows until it runs out",
        suggestion=f"add {detached}",
        related=[loop_place(model, loop)],
        fix=model.fix("Detach it", model.replace(found.tensor, detached), safe=True),
    )


def _given_back(model: FileModel, node: cst.Call, passes: _Passes) -> set[str]:
    """How ``loss, outputs = step(model, batch)`` writes losses, which have their history yet.

    Of ``stats = step(model, batch)`` the entries that are losses: ``stats["loss"]``.
    """
    step = model.call(node).target
    own = passes.by_function.get(step, ()) if isinstance(step, Function) else ()
    if not isinstance(step, Function) or not own:
        return set()
    last = max(model.tree.order[call.node] for call, _ in own)
    cut = {  # ``loss = loss.detach()`` behind it
        name
        for part in walk(step.node.body, into_functions=False)
        if model.tree.order[part] > last
        for name in names_set(part)
    }
    carries = history_of(model, [loss for _, loss in own]).carries - cut
    line = model.parent(node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    found: set[str] = set()
    for value in returned(step):
        for name, given in paired(target if target is not None else node, value):
            if text_of(model, given) in carries and model.value(name).is_device_tensor:
                found.add(text_of(model, name))
            for item in given.elements if isinstance(given, cst.Dict) else ():
                if isinstance(item, cst.DictElement) and text_of(model, item.value) in carries:
                    found.add(f"{text_of(model, name)}[{text_of(model, item.key)}]")
    return found


def _backward_calls(model: FileModel) -> Iterator[_Pass]:
    """Each ``x.backward()`` or ``accelerator.backward(x)``, and ``x``."""
    for call in model.methods("backward", "manual_backward"):
        if call.receiver is None or call.name is not None:
            continue
        if call.positional and not model.value(call.receiver).is_device_tensor:
            yield call, call.positional[0]
        elif call.method == "backward":
            yield call, call.receiver


def _kept_by_object(model: FileModel, call: CallSite, losses: set[str]) -> Iterator[Kept]:
    """``meter.update(loss)`` of an object of the program that adds it to what it has: the loss."""
    method = call.target
    if not isinstance(method, Function) or method.owner is None or method.is_static:
        return
    for index, given in enumerate(call.positional):
        parameters = method.parameters[1:]
        if text_of(model, given) in losses and index < len(parameters):
            total = _total(model, method, parameters[index])
            if total is not None and call.receiver is not None:
                yield Kept(given, f"{text_of(model, call.receiver)}.{total}")
            return


def _total(model: FileModel, method: Function, name: str) -> str | None:
    """The attribute to which a method adds a parameter as it comes, each time."""
    nodes = list(walk(method.node.body, into_functions=False))
    if any(name in names_set(node) for node in nodes):
        return None  # ``if torch.is_tensor(value): value = value.item()``
    of = f"{method.parameters[0]}."
    for node in nodes:
        found = kept(model, node, {name})
        if found is None or not found.root.startswith(of):
            continue
        if any(isinstance(one, cst.Del) for one in nodes):
            return None  # a window: it keeps the last few
        if begins_anew(model, nodes, node, found):
            return None
        aside = model.throttled(node) or model.in_no_grad(node)
        return None if aside else found.total.removeprefix(of)
    return None
