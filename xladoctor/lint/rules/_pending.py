"""Collectives that wait in the graph: is one pending where only some cores go on?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.rules._protocol import EAGER
from xladoctor.lint.rules._run_by_reads import run_by_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop

#: What a loop can go over without that ending the graph between two iterations.
PASSIVE = frozenset({Kind.LOADER, Kind.CONTAINER, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER})


def waits_in_graph(model: FileModel, call: CallSite) -> bool:
    """Whether a call by itself adds a collective that waits in the graph until that is run.

    In eager mode (``torch_xla.experimental.eager_mode(True)``) nothing waits.
    """
    name = model.effects.name(call)
    if name is None or not name.pending or model.effects.ends_graph(call):
        return False
    return not any(_turns_eager_on(model, other) for other in model.calls(EAGER))


def _turns_eager_on(model: FileModel, call: CallSite) -> bool:
    mode = call.argument(0, "enable")
    return mode is not None and model.literal(mode) is True


def now_and_then(model: FileModel, end: cst.CSTNode, node: cst.CSTNode) -> bool:
    """Whether one node runs only every so many steps, and another one at other steps too."""
    if not model.throttled(end, of_batches=True):
        return False
    around = {guard.node for guard in model.guards(node)}
    return any(guard.node not in around for guard in model.guards(end))


def pending_at(model: FileModel, node: cst.CSTNode) -> cst.CSTNode | None:
    """The collective that certainly waits in the graph when a step loop comes to a node.

    Looks at the node's own function, and into what its calls run. None where something that ends
    the graph may have come in between, be it another iteration of a device loader.
    """
    loop = model.step_loop(node)
    if loop is None or loop.implicit or loop.function is not model.function_of(node):
        return None
    calls = _calls_in(model, loop)
    order, here = model.tree.order, model.tree.order[node]
    added = [call.node for call in calls if _adds(model, call)]
    before = [place for place in added if order[place] < here]
    if before:
        last = max(before, key=order.__getitem__)
        ended = _ends_between(model, calls, order[last], here, node)
        return None if ended else last
    behind = [place for place in added if order[place] > here]
    if not behind or not _goes_on(loop):
        return None
    last = max(behind, key=order.__getitem__)
    if _ends_between(model, calls, order[last], None, node):
        return None
    return None if _ends_between(model, calls, order[loop.node], here, node) else last


def pending_behind(model: FileModel, node: cst.CSTNode) -> tuple[cst.CSTNode, Loop] | None:
    """The collective that a step loop before a node certainly leaves in the graph, and that loop.

    A loop in which nothing ends the graph, as its last turn leaves it.
    """
    order, above = model.tree.order, set(model.tree.ancestors(node))
    function = model.function_of(node)
    before = [
        loop
        for loop in model.loops
        if loop.kind is LoopKind.STEP
        and not loop.implicit
        and loop.function is function
        and loop.node not in above
        and model.parent(loop.node) in above
        and order[loop.node] < order[node]
    ]
    loop = max(before, key=lambda one: order[one.node], default=None)
    if loop is None or not _goes_on(loop):
        return None
    inside = _calls_in(model, loop)
    added = [call.node for call in inside if _adds(model, call)]
    later = model.calls_between(loop.node, node)
    if not added or any(may_end(model, one) for x in later for one in model.reached(x.node)):
        return None
    return None if _goes_over_devices(model, loop, later, node) else (added[-1], loop)


def _goes_over_devices(
    model: FileModel, loop: Loop, calls: Sequence[CallSite], node: cst.CSTNode
) -> bool:
    """Whether a loop behind this one, or in what is called there, may end graphs by itself."""
    order = model.tree.order
    functions = {one.function for call in calls for one in model.reached(call.node)}
    functions -= {loop.function}
    return any(
        other.iterates.kind not in PASSIVE
        and (
            other.function in functions
            or (
                other.function is loop.function
                and order[loop.node] < order[other.node] < order[node]
            )
        )
        for other in model.loops_of_program
    )


def _adds(model: FileModel, call: CallSite) -> bool:
    """Whether a collective waits when a call is over: nothing in it ends the graph."""
    inner = model.reached(call.node)
    return left_waiting(model, call) and not any(model.effects.ends_graph(one) for one in inner)


def left_waiting(model: FileModel, call: CallSite) -> bool:
    """Whether a call adds a collective, itself or by what it calls, that nothing in it reads."""
    inner = model.reached(call.node)
    return any(waits_in_graph(model, one) and not run_by_read(model, one, inner) for one in inner)


def _ends_between(
    model: FileModel,
    calls: Sequence[CallSite],
    first: int,
    last: int | None,
    node: cst.CSTNode,
) -> bool:
    """Whether anything between two places may end the graph on all cores that come to a node."""
    order = model.tree.order
    around = set(model.tree.ancestors(node))
    for call in calls:
        at = order[call.node]
        block = _block_of(model, call.node)
        if block is not None and block not in around:
            at = max(at, *(order[part.node] for part in model.calls_in(block)))
        elif block is not None:
            continue  # it ends when the block is left
        if at < first or (last is not None and at >= last):
            continue
        if now_and_then(model, call.node, node):
            continue
        if any(may_end(model, one) for one in model.reached(call.node)):
            return True
    return False


def may_end(model: FileModel, call: CallSite) -> bool:
    """Whether a call ends the graph, or is given the optimizer and nobody has read it."""
    if model.effects.ends_graph(call):
        return True
    if call.target is not None or (call.name or "").startswith(("torch.", "torch_xla.")):
        return False
    last = (call.name or "").rpartition(".")[2] or call.method or ""
    return "sync" in last.lower() or "mark_step" in last.lower() or "barrier" in last.lower()


def _goes_on(loop: Loop) -> bool:
    """Whether a loop comes to its next iteration without ending the graph."""
    return isinstance(loop.node, cst.While) or (
        isinstance(loop.node, cst.For) and loop.iterates.kind in PASSIVE
    )


def _calls_in(model: FileModel, loop: Loop) -> Sequence[CallSite]:
    """The calls of a loop's own function within it, in source order."""
    return [call for call in model.calls_in(loop.node) if call.function is loop.function]


def _block_of(model: FileModel, node: cst.CSTNode) -> cst.With | None:
    """The ``with`` block that a call opens: ``torch_xla.step()`` ends the graph at its exit."""
    item = model.parent(node)
    block = model.parent(item) if isinstance(item, cst.WithItem) else None
    return block if isinstance(block, cst.With) else None
