"""XLA212: the graph of a step loop ends once in a while, and holds several batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind, LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import is_known, moved_by_hand
from xladoctor.lint.rules._pending import PASSIVE
from xladoctor.lint.rules._protocol import compiles
from xladoctor.lint.rules._reads import loop_place, not_here
from xladoctor.lint.rules._windows import unrolled_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_BACKWARD = "backward"
_NEXT = "builtins.next"


@rule("XLA212")
def huge_graph(model: FileModel) -> Iterator[Problem]:
    """Find ``if (i + 1) % n == 0: torch_xla.sync()`` as all that ends a step loop's graph."""
    if not model.is_xla or compiles(model):
        return
    yield from unrolled_windows(model)
    if model.led_by:
        return
    for loop in model.loops:
        if loop.kind is not LoopKind.STEP or loop.implicit or not _ends_nothing(model, loop):
            continue
        calls = model.reached(loop.node)
        if any(call.name == _NEXT for call in calls):
            continue  # of what may be a device loader
        ends = [call for call in calls if model.effects.ends_graph(call)]
        if not ends or not all(_now_and_then(model, call) for call in ends):
            continue
        back = next((call for call in calls if call.method == _BACKWARD), None)
        if back is None or _now_and_then(model, back) or model.loop(back.node) is not loop:
            continue
        end = next(_in_loop(model, loop, ends), None)
        if end is None or not_here(model, end.node):
            continue
        yield model.problem(
            end.node,
            "the graph ends only here, not for every batch: the forward and backward passes of "
            "all batches in between are one graph, which takes that many times longer to "
            "compile, and more memory",
            suggestion="call torch_xla.sync() for every batch, outside of the condition",
            related=[
                loop_place(model, loop),
                model.place(back.node, "a backward pass for every batch"),
            ],
        )


def _in_loop(model: FileModel, loop: Loop, ends: Sequence[CallSite]) -> Iterator[CallSite]:
    """The calls in a loop that end the graph, also by helpers: ``mark_step()`` of the program."""
    nodes = {end.node for end in ends}
    for call in model.calls_in(loop.node):
        if call.node in nodes or any(one.node in nodes for one in model.reached(call.node)):
            yield call


def _ends_nothing(model: FileModel, loop: Loop) -> bool:
    """Whether going over a loop's batches ends no graph by itself, for all that is known."""
    if loop.iterates.kind in PASSIVE and is_known(loop.iterates):
        return True
    unknown = loop.iterates.kind in PASSIVE or loop.iterates.kind is Kind.UNKNOWN
    return unknown and moved_by_hand(model, loop) is not None


def _now_and_then(model: FileModel, call: CallSite) -> bool:
    return model.throttled(call.node, of_batches=True)
