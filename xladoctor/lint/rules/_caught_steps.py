"""Steps whose errors are caught within the loop: a core that raises goes on without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import Function, LoopKind, walk
from xladoctor.lint.model.dotted import last_name
from xladoctor.lint.model.unreached import gives_up

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model import CallSite, FileModel, Loop

#: What catches all that a step may raise.
_BROAD = frozenset({"Exception", "BaseException", "RuntimeError"})
#: What leaves the loop, or the function that it stands in.
_LEAVES = cst.Raise | cst.Return | cst.Break
#: What ends the process.
_EXITS = frozenset(
    {"sys.exit", "os._exit", "os.abort", "os.kill", "builtins.exit", "builtins.quit"}
)


def caught_steps(
    model: FileModel, collectives: Mapping[cst.CSTNode, CallSite]
) -> Iterator[tuple[cst.ExceptHandler, CallSite, Loop]]:
    """Find ``except Exception: continue`` around a step in which the cores meet.

    Only where a backward pass may raise before the cores have met: what a collective itself raises
    all cores see. Not where the handler raises, leaves or ends the run, nor where they meet in it.

    Args:
        model: The file.
        collectives: The calls in which all cores meet.

    Yields:
        The handler, what the others wait in, and the loop that goes on.
    """
    events = [x for part in (model, *model.linked) for x in part.effects.of(Effect.BACKWARD)]
    backward = {event.node for event in events}
    for tried in model.nodes(cst.Try) if backward and collectives else ():
        loop = model.loop(tried) or model.step_loop(tried)
        if loop is None or loop.kind not in {LoopKind.STEP, LoopKind.EPOCH} or loop.implicit:
            continue
        handler = next((one for one in tried.handlers if _is_broad(one)), None)
        if handler is None or model.on_every_core(tried) is None:
            continue
        lost = _lost(model, tried, backward, collectives)
        if lost is not None and _goes_on(model, handler, collectives):
            yield handler, lost, loop


def _is_broad(handler: cst.ExceptHandler) -> bool:
    """``except:``, ``except Exception:``, ``except (RuntimeError, ValueError):``."""
    caught = handler.type
    kinds = [one.value for one in caught.elements] if isinstance(caught, cst.Tuple) else [caught]
    return any(kind is None or last_name(kind) in _BROAD for kind in kinds)


def _lost(
    model: FileModel,
    tried: cst.Try,
    backward: AbstractSet[cst.CSTNode],
    collectives: Mapping[cst.CSTNode, CallSite],
) -> CallSite | None:
    """The first meeting in what is tried that no core comes to whose backward pass raises."""
    begun = False
    for call in model.calls_in(tried.body):
        run = [call.node, *(one.node for one in model.reached(call.node))]
        begun = begun or not backward.isdisjoint(run)
        if begun:
            met = next((collectives[one] for one in run if one in collectives), None)
            if met is not None:
                return met
    return None


def _goes_on(
    model: FileModel, handler: cst.ExceptHandler, collectives: Collection[cst.CSTNode]
) -> bool:
    """Whether the loop takes its next turn behind a handler."""
    if gives_up(handler) or any(isinstance(part, _LEAVES) for part in walk(handler.body)):
        return False
    reached = model.reached(handler.body)
    called = [one.target for one in reached if isinstance(one.target, Function)]
    raises = any(isinstance(part, cst.Raise) for one in called for part in walk(one.node.body))
    return not raises and not any(one.name in _EXITS or one.node in collectives for one in reached)
