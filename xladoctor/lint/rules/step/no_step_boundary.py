"""XLA301: nothing ends the graph in a step loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect, Returns
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.evidence import STEPS
from xladoctor.lint.model.training import steps_environment
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._batches import (
    is_given_plain,
    is_handed_in,
    is_known,
    moved_by_hand,
    moves_its_batch,
)
from xladoctor.lint.rules._beside import over_own_loader
from xladoctor.lint.rules._denoising import denoising
from xladoctor.lint.rules._drawing_turns import drawing_turns
from xladoctor.lint.rules._dropped import drops_all
from xladoctor.lint.rules._ends import fetches, may_end
from xladoctor.lint.rules._formatting import FORMATTING, formats
from xladoctor.lint.rules._generators import hands_on_device_loader, makes_its_own
from xladoctor.lint.rules._pending import PASSIVE
from xladoctor.lint.rules._piled import piled_up
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP, by_scaler, compiles, takes_step
from xladoctor.lint.rules._reads import loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: Steps that programs take on one batch before they end the graph.
_FEW = 32
_NEXT = "builtins.next"
_MAY_BE_ON_DEVICE = (cst.Name, cst.Call)


@rule("XLA301")
def no_step_boundary(model: FileModel) -> Iterator[Problem]:
    """Find step and evaluation loops over plain loaders in which nothing syncs.

    And loops over the time steps of a diffusion, which call a model in each turn, and loops that
    draw on the device and read in each turn.
    """
    if not model.is_xla:
        return
    yield from denoising(model)
    if compiles(model):
        return
    yield from drawing_turns(model)
    yield from _over_batches(model)


def _over_batches(model: FileModel) -> Iterator[Problem]:
    acting = _acting(model)
    fed = _evaluating(model)
    told: set[cst.CSTNode] = set()
    for loop in model.loops:
        # Within ``enumerate`` and a progress bar too, what nobody has read is not known.
        by_hand = loop.kind is LoopKind.STEP and (
            not is_known(loop.iterates) or loop.node in acting
        )
        passive = loop.iterates.kind in PASSIVE or loop.node in fed
        if loop.implicit or not (passive or by_hand):
            continue
        if model.led_by and not (loop.kind is LoopKind.EVAL and over_own_loader(model, loop)):
            continue
        calls = model.reached(loop.node)
        if _is_ended(model, loop, calls) or not _uses_device(model, loop, calls):
            continue
        if by_hand:
            if _is_fed(model, loop, loop.node in acting) and not _may_end_in(model, calls):
                yield from _training(model, loop, calls, told)
            continue
        own = loop.node in fed or makes_its_own(model, loop)
        if _may_be_device_loader(model, loop) or not (own or is_known(loop.iterates)):
            continue
        if loop.iterates.kind is not Kind.LOADER and _ended_outside(model, loop):
            continue
        if loop.kind is LoopKind.STEP:
            yield from _training(model, loop, calls, told)
        elif loop.kind is LoopKind.EVAL and (
            own or loop.iterates.kind is Kind.LOADER or moved_by_hand(model, loop) is not None
        ):
            yield from _evaluation(model, loop, calls)


def _is_ended(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> bool:
    """Whether something in a loop, or what it goes over, ends the graph.

    What is due each thousand steps and ends it by the way does not: ``xm.rendezvous("saved")``. A
    ``torch_xla.sync()`` each few steps of a loop over a loader is another matter (XLA212).
    """
    ends = [call for call in calls if model.effects.ends_graph(call)]
    if any(not model.throttled(call.node) for call in ends):
        return True
    over_loader = not any(call.name == _NEXT for call in calls)
    seldom = over_loader and any(call.name in STEPS for call in ends)
    return seldom or hands_on_device_loader(model, loop)


def _acting(model: FileModel) -> frozenset[cst.CSTNode]:
    """The loops that act in an environment, and go over nothing that could end their steps."""
    loops = (model.loop(call) for call in model.tree.calls if steps_environment(call))
    kinds = {Kind.UNKNOWN, Kind.CONTAINER}
    return frozenset(loop.node for loop in loops if loop is not None if loop.iterates.kind in kinds)


def _evaluating(model: FileModel) -> frozenset[cst.CSTNode]:
    """The evaluation loops that move what something unread gives them, and that nothing ends."""
    return frozenset(
        loop.node
        for loop in model.loops
        if loop.kind is LoopKind.EVAL
        and loop.iterates.kind is Kind.UNKNOWN
        and moves_its_batch(model, loop)
        and not _may_end_in(model, model.reached(loop.node))
    )


def _is_fed(model: FileModel, loop: Loop, acts: bool) -> bool:
    """Whether a loop gets its data by its own hands, not from a device loader."""
    return acts or (
        moved_by_hand(model, loop) is not None
        and not is_handed_in(model, loop)
        and not _ended_outside(model, loop)
    )


def _training(
    model: FileModel, loop: Loop, calls: Sequence[CallSite], told: set[cst.CSTNode]
) -> Iterator[Problem]:
    scaled = (c for c in calls if c.method == "step" and by_scaler(model, c))
    step = next((c for c in calls if takes_step(model, c)), None) or next(scaled, None)
    if step is None or step.node in told:
        return  # of two loops around one step the outer one is told
    told.add(step.node)
    if step.name == OPTIMIZER_STEP:
        fix = model.fix(
            "Give barrier=True", model.add_argument(step.node, "barrier=True"), safe=False
        )
        advice = (
            "give xm.optimizer_step(optimizer, barrier=True), or wrap the loader in "
            "pl.MpDeviceLoader(loader, device)"
        )
        why = "xm.optimizer_step without barrier=True does not end the graph"
    else:
        fix = _sync_fix(model, loop, step)
        advice = (
            "call torch_xla.sync() after the optimizer step, or wrap the loader in "
            "pl.MpDeviceLoader(loader, device)"
        )
        why = "a plain loader does not end the graph"
    # The end of the graph belongs behind the optimizer's step, where the run sees it missing too.
    around, at_step = loop_place(model, loop), model.place(step.node, "the optimizer step")
    here = model.is_here(step.node)
    seldom = any(map(model.effects.ends_graph, calls))
    how = "only what this step loop seldom does" if seldom else "nothing in this step loop"
    yield model.problem(
        step.node if here else loop.node,
        f"{how} ends the graph ({why}): it grows with every step, and so do tracing, compilation "
        "and memory",
        suggestion=advice,
        related=[around if here else at_step],
        fix=fix,
    )


def _evaluation(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> Iterator[Problem]:
    if any(fetches(model, call, sure=True) or _reads(model, call) for call in calls) or _shows(
        model, loop
    ):
        # Each read runs what it needs: another matter (XLA101). What it does not need waits.
        kept = piled_up(model, loop, calls)
        if kept is not None:
            yield model.problem(
                kept,
                "nothing in this evaluation loop ends the graph, and a read runs only what it "
                "needs: what is kept here waits with the model's work for all batches, which "
                "become one graph",
                suggestion="call torch_xla.sync() at the end of the body, or wrap the loader in "
                "pl.MpDeviceLoader(loader, device)",
                related=[loop_place(model, loop)],
            )
        return
    if drops_all(model, loop.node):
        return
    yield model.problem(
        loop.node,
        "nothing in this evaluation loop ends the graph: all its batches become one graph, "
        "recompiled for every number of batches",
        suggestion="call torch_xla.sync() at the end of the body, or wrap the loader in "
        "pl.MpDeviceLoader(loader, device)",
    )


def _reads(model: FileModel, call: CallSite) -> bool:
    """``metric.add_batch(predictions=predictions)``: a library that reads what it is given."""
    return any(event.effect is Effect.READ for event in model.effects.by_call(call))


def _shows(model: FileModel, loop: Loop) -> bool:
    """``bar.set_postfix(acc=f"{accuracy:.3f}")`` for each batch."""
    return any(
        formats(model, node) is not None and not model.throttled(node)
        for node in walk(loop.node)
        if isinstance(node, FORMATTING)
    )


def _uses_device(model: FileModel, loop: Loop, calls: Sequence[CallSite]) -> bool:
    """Whether the loop certainly has to do with the device, itself or in what it runs."""

    def on_device(node: cst.BaseExpression) -> bool:
        value = model.value(node)
        return value.is_device_tensor or (value.kind is Kind.MODEL and value.on_device)

    if any(on_device(node) for kind in _MAY_BE_ON_DEVICE for node in model.within(loop.node, kind)):
        return True
    # ``for batch in loader: trainer.step(batch)``; not beside a loop that another device runs.
    return not any(call.method == "cuda" for call in calls) and any(
        call.method == "to" and on_device(call.node) for call in calls
    )


def _sync_fix(model: FileModel, loop: Loop, step: CallSite) -> Fix | None:
    """``torch_xla.sync()`` behind the optimizer's step, if nothing better is offered.

    Where the loop moves its batches by hand, a device loader does both (XLA603).
    """
    line = line_of(model, step.node)
    moves = any(
        call.method == "to" and model.value(call.node).origin is call.node
        for call in model.reached(loop.node)
    )
    written = spell(model, loop.node, "torch_xla.sync")
    if moves or written is None or line is None or model.loop(step.node) is not loop:
        return None
    behind = insert_behind(model, line, f"{written[0]}()")
    return model.fix("End the graph of each step", behind, written[1], safe=False)


def _may_be_device_loader(model: FileModel, loop: Loop) -> bool:
    """A loader by its name alone, in a program that has device loaders: nobody knows which."""
    if loop.iterates.kind is not Kind.LOADER or isinstance(loop.iterates.origin, cst.Call):
        return False
    names = ("MpDeviceLoader", "ParallelLoader", "per_device_loader")
    return any(
        (call.name or call.method or "").endswith(names)
        for part in (model, *model.linked)
        for call in part.calls()
    )


def _ended_outside(model: FileModel, loop: Loop) -> bool:
    """A few steps on one batch: the loop that calls this may end the graph, or nobody knows it."""
    function = loop.function
    if function is None or _turns(model, loop) > _FEW or is_given_plain(model, loop):
        return False
    above = set(model.tree.ancestors(loop.node))
    outer = (one for one in model.loops if one.node in above and not one.implicit)
    if any(_ends_batches(model, one) for one in outer):
        return True  # ``for _ in range(n_critic):`` in a loop over a device loader
    if _evaluates_many(model, loop):
        return False
    callers = model.callers(function)
    if not callers:
        # What asks for the device itself is no helper that is handed a batch.
        asks = any(
            call.name in model.library.returning(Returns.DEVICE)
            for call in model.reached(function.node)
        )
        return bool(function.parameters) and not _is_started(model, loop) and not asks
    around = (model.loop(call.node) for call in callers)
    return any(outer is not None and _ends_batches(model, outer) for outer in around)


def _evaluates_many(model: FileModel, loop: Loop) -> bool:
    """``for _ in range(eval_batches)`` that fetches and uploads a batch of its own in each turn."""
    return (
        loop.kind is LoopKind.EVAL
        and not _turns(model, loop)
        and moved_by_hand(model, loop) is not None
    )


def _ends_batches(model: FileModel, loop: Loop) -> bool:
    """Whether a loop ends the graph of each batch: one over epochs, or models, ends none.

    One that takes a batch for each of its turns (``inner(net, next(batches))``) is none of those.
    """
    takes = (call for call in model.calls(_NEXT) if model.loop(call.node) is loop)
    return (loop.kind is not LoopKind.EPOCH or any(takes)) and _ends(model, loop)


def _is_started(model: FileModel, loop: Loop) -> bool:
    """Whether a start of the cores in sight runs the loop, so that no other file is around it.

    A file that asks which core it is counts as code of several cores too, but then nobody knows
    which of its functions are started, and which another file calls for each batch.
    """
    entry = model.on_every_core(loop.node)
    if entry is None:
        # ``mp.Process(target=train, args=(model,))``
        ran = (call.keywords.get("target") for call in model.calls())
        return any(node is not None and model.value(node).function is loop.function for node in ran)
    return entry.call is not None or (
        entry.function is not None and entry.function.name == "_mp_fn"
    )


def _turns(model: FileModel, loop: Loop) -> int:
    """How often a loop over a ``range`` runs, 0 if that is not written down."""
    node = loop.over
    if not isinstance(node, cst.Call) or model.name(node.func) != "builtins.range":
        return 0
    given = [model.literal(arg.value) for arg in node.args]
    turns = [number for number in given if isinstance(number, int)]
    if not turns or len(turns) != len(given) or 0 in turns[2:]:
        return 0
    start, end = (0, *turns)[-2:] if len(turns) == 1 else turns[:2]
    return max(0, (end - start) // (turns[2] if turns[2:] else 1))


def _ends(model: FileModel, loop: Loop) -> bool:
    # A ``while`` goes over nothing that could end the graph, unless it takes batches by itself.
    takes = isinstance(loop.node, cst.For) or any(
        call.name == "builtins.next" or call.method in {"next", "__next__"}
        for call in model.reached(loop.node)
    )
    if takes and loop.iterates.kind not in PASSIVE:
        return True
    return model.effects.ends(loop.node)


def _may_end_in(model: FileModel, calls: Sequence[CallSite]) -> bool:
    """Whether something that nobody has read is given the optimizer, or ends steps by its name."""
    for call in calls:
        if by_scaler(model, call):
            continue
        if may_end(model, call):
            return True
        given = [argument.value for argument in call.node.args]
        read = call.target is not None or (call.name or "").startswith(("torch.", "torch_xla."))
        if not read and any(model.value(node).kind is Kind.OPTIMIZER for node in given):
            return True
    return False
