"""Loops that draw on the device and read in each turn, and whose graph nothing ends.

A read runs what it needs. The state of the generator, which each draw takes one further, is not
read: it stays in the graph, so each turn's graph is that of the turn before and one more step of
the generator. Measured on torch_xla 2.9: ``.item()`` and ``.cpu()`` compiled once in every turn
where something was drawn on the device, and never again where nothing was, or behind a ``sync()``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.rules._device_draws import draws
from xladoctor.lint.rules._pending import PASSIVE
from xladoctor.lint.rules._reads import not_here, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_READS = frozenset({"item", "cpu", "tolist", "numpy"})
_CASTS = frozenset({"builtins.float", "builtins.int", "builtins.bool"})
#: Names of functions that nobody has read and that may end the graph.
_ENDS = re.compile(r"sync|mark|barrier|flush|optimizer_step", re.IGNORECASE)
#: Turns within a longer loop that ends the graph: few graphs, which come again.
_FEW = 16
#: Turns that are tried out.
_SOME = 3


def drawing_turns(model: FileModel) -> Iterator[Problem]:
    """Find loops that are compiled anew in each turn for the generator's sake.

    Args:
        model: The file.

    Yields:
        One problem for each loop; loops that train are told by what they lack already.
    """
    told: set[cst.CSTNode] = set()  # the loops around those that are told
    inner_first = sorted(model.loops, key=lambda one: -model.tree.order[one.node])
    for loop in inner_first:
        if loop.implicit or loop.kind is LoopKind.STEP or not _goes_on(loop):
            continue
        if loop.node in told:
            continue
        calls = model.reached(loop.node)
        drawn = next((call for call in calls if draws(model, call)), None)
        if drawn is None or "generator" in drawn.keywords or not_here(model, loop.node):
            continue
        read = next((call for call in calls if _reads(model, call)), None)
        if read is None or any(_may_end(model, call) for call in calls):
            continue
        if _makes_few(model, loop) or not _is_in_sight(model, loop, drawn, read):
            continue
        told.update(model.tree.ancestors(loop.node))
        yield model.problem(
            loop.node,
            f"{snippet(model, drawn.node)} advances the device's generator, which the read in "
            "this loop does not execute: nothing ends the graph, so each turn's graph is longer "
            "than the one before, and is compiled",
            suggestion="call torch_xla.sync() at the end of the body",
            related=[
                model.place(drawn.node, "drawn here"),
                model.place(read.node, "read here"),
            ],
        )


def _goes_on(loop: Loop) -> bool:
    """Whether taking the next turn ends nothing by itself."""
    return isinstance(loop.node, cst.While) or loop.iterates.kind in PASSIVE


def _reads(model: FileModel, call: CallSite) -> bool:
    """Whether a call reads a device tensor in each turn."""
    if call.method in _READS and call.name is None:
        node = call.receiver
    else:
        node = call.argument(0) if call.name in _CASTS else None
    if node is None or not model.value(node).is_device_tensor:
        return False
    return not model.throttled(call.node)


def _may_end(model: FileModel, call: CallSite) -> bool:
    if model.effects.ends_graph(call):
        return True
    return call.target is None and bool(_ENDS.search(call.last))


def _is_in_sight(model: FileModel, loop: Loop, *calls: CallSite) -> bool:
    """Whether one of the calls stands in the loop itself, not in what its calls lead to."""
    return any(loop.node in model.tree.ancestors(call.node) for call in calls)


def _makes_few(model: FileModel, loop: Loop) -> bool:
    """Whether the loop makes few graphs.

    Within a loop that ends the graph they are compiled in its first turn, and come again.
    """
    turns = _turns(model, loop)
    if turns is not None and turns <= _SOME:
        return True
    function = loop.function
    callers = model.callers(function) if function is not None else ()
    around = [model.loop(loop.node), *(model.loop(call.node) for call in callers)]
    outer = [one for one in around if one is not None and one is not loop]
    ended = any(one.iterates.kind not in PASSIVE or _ends(model, one) for one in outer)
    # As many batches as there are data, as many steps as an environment is played for.
    many = loop.iterates.kind is Kind.LOADER or loop.kind is LoopKind.ROLLOUT
    return ended and not (many and turns is None) and (turns or 0) <= _FEW


def _ends(model: FileModel, loop: Loop) -> bool:
    """Whether a loop ends the graph in each turn, be it by going over a device loader in it."""
    if model.effects.ends(loop.node):
        return True
    ran = {call.target for call in model.reached(loop.node)}
    return any(
        inner.iterates.kind is Kind.DEVICE_LOADER
        and (
            loop.node in model.tree.ancestors(inner.node)
            or (inner.function is not None and inner.function in ran)
        )
        for inner in model.loops
    )


def _turns(model: FileModel, loop: Loop) -> int | None:
    """How often a loop over a ``range`` runs, if that is written down."""
    node = loop.over
    if not isinstance(node, cst.Call) or model.name(node.func) != "builtins.range":
        return None
    last = model.literal(node.args[-1].value) if len(node.args) < 3 else None
    return last if isinstance(last, int) else None
