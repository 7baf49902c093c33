"""Where the graph has ended on all cores, before some of them go on alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, Kind, LoopKind, OnXla, walk
from xladoctor.lint.rules._batches import is_known
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._pending import left_waiting, now_and_then, waits_in_graph
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, reduces_gradients, steps_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop

_DEPTH = 2


def nothing_pending(
    model: FileModel,
    node: cst.CSTNode,
    function: Function | None,
    guard: Guard,
    depth: int = _DEPTH,
) -> bool:
    """Whether the graph has ended on all cores before a node that only some of them come to.

    Args:
        model: The file.
        node: What only some cores run.
        function: The function that it stands in, None for the module.
        guard: The condition that keeps the others from it.
        depth: How many callers are asked, where the function itself does not tell.
    """
    if guard.master is not None and model.in_step_closure(node):
        return True  # it runs behind the step, whose graph has ended on all cores
    if _steps_without_collectives(model, function):
        return True
    around = model.loop(node)
    for end in _ends_of_graphs(model, function):
        if end is node or not in_order(model, end, node) or not _comes_out(model, end, around):
            continue
        if any(other.node is guard.node for other in model.guards(end)):
            continue  # the other cores do not come there either
        if now_and_then(model, end, node):
            continue
        return not _started_between(model, function, end, node)
    if around is not None and _ended_by_the_turn_before(model, function, node, around):
        return True
    if function is None or depth == 0:
        return False
    if around is not None and (around.function is not function or _adds_one(model, around)):
        return False  # ``for name, net in nets.items():`` around what saves adds none
    callers = model.callers(function)
    return bool(callers) and all(
        nothing_pending(model, caller.node, caller.function, guard, depth - 1) for caller in callers
    )


def _ended_by_the_turn_before(
    model: FileModel, function: Function | None, node: cst.CSTNode, loop: Loop
) -> bool:
    """``for step in range(n): if due: save()``, with ``xm.mark_step()`` at the end of each turn."""
    if loop.function is not function or loop.implicit or loop.kind is not LoopKind.STEP:
        return False
    ends = [
        end
        for end in _ends_of_graphs(model, function)
        if model.loop(end) is loop
        and end is not node
        and in_order(model, node, end)
        and _ends_each_turn(model, end, loop)
    ]
    return bool(ends) and not any(
        in_order(model, call.node, node) and left_waiting(model, call)
        for call in model.calls_of(function)
    )


def _steps_without_collectives(model: FileModel, function: Function | None) -> bool:
    """Whether a function takes all steps itself, and no line of the program reduces anything.

    (Which is told by XLA302.) ``optimizer.step()`` of each core alone leaves nothing to wait for.
    """
    if function is None or model.led_by or model.once(_reduces):
        return False
    steps = [loop for loop in model.loops if loop.kind is LoopKind.STEP]
    calls = (call for loop in steps for call in model.calls_in(loop.node))
    taken = {call.function for call in calls if steps_optimizer(model, call)}
    return taken == {function}


def _reduces(model: FileModel) -> bool:
    """Whether any line of the program may leave a collective in the graph."""
    return reduces_gradients(model) or any(
        waits_in_graph(part, call) for part in (model, *model.linked) for call in part.calls()
    )


def _adds_one(model: FileModel, loop: Loop) -> bool:
    """Whether an earlier turn of a loop may have left a collective in the graph."""
    return any(waits_in_graph(model, call) for call in model.reached(loop.node))


def _comes_out(model: FileModel, end: cst.CSTNode, around: Loop | None) -> bool:
    """Whether what ends the graph stands in a loop's own body, or its loop over epochs has ended.

    ``while step < steps: for batch in device_loader: ...``: the last thing that such a loop does is
    to go over the loader to its end, unless something leaves it before. So is what ends the graph
    in each turn of a loop, if the rest of the turn puts nothing into the next one.
    """
    loop = model.loop(end)
    while loop is not around:
        if loop is None or loop.implicit:
            return False
        if not isinstance(end, cst.For) and not _ends_each_turn(model, end, loop):
            return False
        leaves = (part for part in walk(loop.node, into_functions=False) if type(part) is cst.Break)
        if any(in_order(model, part, end) for part in leaves):
            return False
        loop = model.loop(loop.node)
    return True


def _ends_each_turn(model: FileModel, end: cst.CSTNode, loop: Loop) -> bool:
    """Whether no condition in a loop decides about an end, and no collective follows it there."""
    within = set(walk(loop.node)) - {loop.node}
    asked = (guard for guard in model.guards(end) if guard.runs is not OnXla.YES)
    if any(guard.node in within for guard in asked):
        return False
    return not any(
        call.node in within and in_order(model, end, call.node) and left_waiting(model, call)
        for call in model.calls_of(loop.function)
        if call.node is not end
    )


def _ends_of_graphs(model: FileModel, function: Function | None) -> Iterator[cst.CSTNode]:
    """What ends the pending graph in a function, the last first."""
    found: list[cst.CSTNode] = [
        call.node
        for call in model.calls_of(function)
        if model.effects.ends_graph(call) or _loops_to_the_end(model, call)
    ]
    loops = (loop for loop in model.loops if loop.function is function)
    found.extend(loop.node for loop in loops if _is_whole(model, loop))
    yield from sorted(found, key=model.tree.order.__getitem__, reverse=True)


def _loops_to_the_end(model: FileModel, call: CallSite) -> bool:
    """Whether a call runs a function with a whole loop over a device loader: ``train(loader)``."""
    return isinstance(call.target, Function) and any(
        loop.function is not None
        and call.target in {loop.function, loop.function.outer}
        and _is_whole(model, loop)
        for loop in model.loops
    )


def _is_fed(model: FileModel, loop: Loop) -> bool:
    """Whether a loop reduces and steps over a loader that nobody has read: a device loader."""
    return not is_known(loop.iterates) and any(
        call.name == OPTIMIZER_STEP for call in model.reached(loop.node)
    )


def _is_whole(model: FileModel, loop: Loop) -> bool:
    """A device loader ends the graph before it says that there is nothing more."""
    return (
        not loop.implicit
        and (loop.iterates.kind is Kind.DEVICE_LOADER or _is_fed(model, loop))
        and isinstance(loop.node, cst.For)
        and not any(isinstance(part, cst.Break) for part in walk(loop.node, into_functions=False))
    )


def _started_between(
    model: FileModel, function: Function | None, end: cst.CSTNode, node: cst.CSTNode
) -> bool:
    """Whether a new collective is put into the graph behind its last end."""
    inside = set(walk(end))
    return any(
        call.node not in inside
        and in_order(model, end, call.node, node)
        and left_waiting(model, call)
        for call in model.calls_of(function)
    )
