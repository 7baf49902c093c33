"""XLA101: a device value is read on the host in the step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.events import How
from xladoctor.lint.library import Effect
from xladoctor.lint.model import LoopKind
from xladoctor.lint.reading import processed
from xladoctor.lint.rewrites.accumulate import accumulate_fix
from xladoctor.lint.rewrites.closures import closure_fix
from xladoctor.lint.rewrites.kept import kept_fix
from xladoctor.lint.rewrites.lightning import logged_fix
from xladoctor.lint.rewrites.meters import meter_fix
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import accumulate_advice, read_problem, waiting_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.findings import Fix
    from xladoctor.lint.events import Event
    from xladoctor.lint.model import FileModel, Loop, Problem

_DECODED = "decode once after the loop, or a few examples every 100 steps"
_PROCESSED = "process the batch where it is loaded, on the host, before it goes to the device"
_ADVICE = {
    ".decode": _DECODED,
    ".batch_decode": _DECODED,
    ".convert_ids_to_tokens": _DECODED,
    ".step": "act for many environments at once, or keep a copy of the policy on the host to act",
    "torch.tensor": "use torch.stack([a.detach(), b.detach()]), which stays on the device",
    "torch.allclose": "use torch.isclose(a, b).all(), kept as a tensor",
}


@rule("XLA101")
def host_sync_in_step(model: FileModel) -> Iterator[Problem]:
    """Find reads of device tensors in hot loops: methods, libraries, stores into CPU tensors."""
    for event in model.effects.of(Effect.READ):
        if event.how is How.CAST or _meets(event):
            continue  # XLA102, XLA423
        loop = waiting_loop(model, event.node)
        if loop is None or event.value is None or _of_many_graphs(model, event.node, loop):
            continue
        how, advice = _words(event, loop)
        fix = _fix(model, event, event.value, loop)
        yield read_problem(model, event.node, event.value, loop, how, advice, fix)


def _of_many_graphs(model: FileModel, node: cst.CSTNode, loop: Loop) -> bool:
    """Behind a loop of a function that an evaluation calls, each turn of which is a graph.

    ``sample(prompt)`` writes token by token, with ``xm.mark_step()``, and reads what it has written
    once: beside its graphs that costs nothing.
    """
    if loop.kind is not LoopKind.EVAL or model.function_of(node) is loop.function:
        return False
    order, around = model.tree.order, {*model.tree.ancestors(node)}
    home = model.function_of(node)
    return any(
        inner.function is home
        and inner.node not in around
        and not inner.implicit
        and order[inner.node] < order[node]
        and any(map(model.effects.ends_graph, model.reached(inner.node)))
        for inner in model.loops
        if inner.node in order
    )


def _meets(event: Event) -> bool:
    return event.name is not None and Effect.COLLECTIVE in event.name.effects


def _words(event: Event, loop: Loop) -> tuple[str, str]:
    """What reads, and what to write instead."""
    if event.call is None:
        return "storing into a CPU tensor reads", (
            "create the tensor on the device, or append to a list and torch.stack it after the loop"
        )
    if event.how is How.LIBRARY:
        spelled = event.call.name or f".{event.call.method}"
        if processed(event.call):
            return f"`{event.call.written}()` reads", _PROCESSED
        advice = (
            "keep what it is given in lists on the device, and give it all after the loop"
            if loop.kind is LoopKind.EVAL
            else "log every 100 steps in a step closure: xm.add_step_closure(log, args=(...))"
        )
        return f"`{spelled}()` reads", _ADVICE.get(spelled, advice)
    spelled = '.to("cpu")' if event.call.method == "to" else f".{event.call.method}()"
    return f"`{spelled}` reads", accumulate_advice(loop)


def _fix(model: FileModel, event: Event, tensor: cst.BaseExpression, loop: Loop) -> Fix | None:
    """Leave the value on the device, where a sum, a meter or a list takes it."""
    if event.call is None:
        return None
    if event.how is How.METHOD and event.call.method == "item":
        node = event.call.node
        fix = (
            accumulate_fix(model, node, tensor, loop)
            or meter_fix(model, node, tensor, loop)
            or kept_fix(model, node, tensor, loop)
            or logged_fix(model, event.call)
        )
        if fix is not None:
            return fix
    return closure_fix(model, event.call.node, loop)
