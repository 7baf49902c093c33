"""XLA420: a core may leave the step loop, or skip a step, on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.knowledge import FSDP_CLASS
from xladoctor.lint.model.taken import targets
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._caught_steps import caught_steps
from xladoctor.lint.rules._cores import ends_the_run
from xladoctor.lint.rules._flags_of_master import set_on_master
from xladoctor.lint.rules._norms import is_wrapped, own_norm
from xladoctor.lint.rules._own_losses import own_loss
from xladoctor.lint.rules._reads import loop_place, snippet
from xladoctor.lint.rules._shares import every_nth
from xladoctor.lint.rules._signals import asks_signal
from xladoctor.lint.rules._stopped import stopped_alone
from xladoctor.lint.rules._together import brings_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Loop, Problem

#: Their backward pass is a collective.
_WRAPPERS = (FSDP_CLASS, "torch.nn.parallel.DistributedDataParallel")
_XM = "torch_xla.core.xla_model"
_DEEPEST = 3
#: What reads the clock of the machine, and of this process alone.
_CLOCKS = frozenset(
    {"time.time", "time.perf_counter", "time.monotonic", "time.time_ns", "time.process_time",
     "timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow"}
)  # fmt: skip
_TRAINING = frozenset({LoopKind.STEP, LoopKind.EPOCH})
#: Questions whose answer is one truth value, if what is asked is a scalar.
_FLAGS = frozenset({"isnan", "isinf", "isfinite", "any", "all"})


@rule("XLA420")
def uneven_iterations(model: FileModel) -> Iterator[Problem]:
    """Find ``break``, ``continue`` and ``return`` on a condition of one core, in step loops.

    And in loops over epochs, which a core leaves with all the steps that the others still take.
    """
    if not model.is_xla or model.spmd:
        return
    yield from stopped_alone(model)
    if not model.looped_by:
        yield from _in_loops(model)


def _in_loops(model: FileModel) -> Iterator[Problem]:
    # The step, and what all cores meet in, may stand in another file than the loop over epochs.
    asked = [Effect.COLLECTIVE, *([Effect.BACKWARD] if is_wrapped(model, _WRAPPERS) else [])]
    if "accelerate" in model.led_by:
        asked.append(Effect.OPTIMIZER_STEP)  # of an optimizer that it prepared: reduces first
    events = [event for part in (model, *model.linked) for event in part.effects.of(*asked)]
    collectives: dict[cst.CSTNode, CallSite] = {
        event.call.node: event.call for event in events if event.call is not None
    }
    yield from _caught(model, collectives)
    met_in: dict[Loop, list[CallSite]] = {}
    for call in collectives.values():
        for inner in {model.loop(call.node), model.step_loop(call.node)} - {None}:
            met_in.setdefault(cast("Loop", inner), []).append(call)
    for loop in model.loops:
        if loop.implicit:
            continue
        if loop.kind is not LoopKind.EPOCH:
            meetings = met_in.get(loop, [])
        else:
            reached = (call.node for call in model.reached(loop.node))
            steps = (node for node in reached if model.step_loop(node) is not None)
            meetings = [collectives[node] for node in steps if node in collectives]
            meetings += met_in.get(loop, []) if not meetings else []
        if not meetings or model.on_every_core(loop.node) is None:
            continue
        if loop.kind in _TRAINING:
            yield from _begins_apart(model, loop, meetings)
            yield from _uneven_shares(model, loop, meetings)
        told: set[cst.CSTNode] = set()
        for node in walk(loop.node, into_functions=False):
            if not isinstance(node, cst.Break | cst.Continue | cst.Return):
                continue
            if model.loop(node) is not loop:
                continue
            yield from _leaves(model, loop, node, meetings, told)


def _caught(model: FileModel, collectives: Mapping[cst.CSTNode, CallSite]) -> Iterator[Problem]:
    """``except Exception: continue`` around the step."""
    for handler, met, loop in caught_steps(model, collectives):
        yield model.problem(
            handler,
            f"a core whose step raises goes on to the next one alone: "
            f"{snippet(model, met.node.func)} of the others meets that of its next step, and hangs "
            "when it has no more",
            suggestion="let it raise, which ends the run on all cores; catch only what no core "
            "can raise alone",
            related=[
                model.place(met.node, "where all cores have to meet"),
                loop_place(model, loop),
            ],
        )


def _begins_apart(model: FileModel, loop: Loop, meetings: list[CallSite]) -> Iterator[Problem]:
    """``for epoch in range(start, n)`` where only the master has read ``start`` from a file."""
    over = loop.over
    if not isinstance(over, cst.Call) or model.name(over.func) != "builtins.range":
        return
    for part in (part for argument in over.args for part in walk(argument.value)):
        given = _set_by_master(model, part, loop) if _names_one(model, part) else None
        if given is None:
            continue
        yield model.problem(
            over,
            f"only the master core sets {snippet(model, part)}: it takes fewer or more turns than "
            f"the others, who wait for it at {snippet(model, meetings[-1].node.func)}",
            suggestion="read it on all cores, or send it to them: "
            'xm.mesh_reduce("start", start, max)',
            related=[
                model.place(given, "on the master core alone"),
                model.place(meetings[-1].node, "where all cores have to meet"),
                loop_place(model, loop),
            ],
        )
        return


def _uneven_shares(model: FileModel, loop: Loop, meetings: list[CallSite]) -> Iterator[Problem]:
    """``for batch in batches[rank::world]``, with a step in each turn."""
    share = every_nth(model, loop) if loop.kind is LoopKind.STEP else None
    if share is not None:
        yield model.problem(
            share,
            f"where the cores do not divide the data, the first ones take one turn more of "
            f"{snippet(model, share)}, and wait for the others at "
            f"{snippet(model, meetings[-1].node.func)}",
            suggestion="give all cores as many turns: cut the data to `n // world * world` before",
            related=[
                model.place(meetings[-1].node, "where all cores have to meet"),
                loop_place(model, loop),
            ],
        )


def _names_one(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node is a name, attribute or ``state["epoch"]`` by itself, and no part of one."""
    if isinstance(node, cst.Attribute | cst.Subscript):
        return True
    return isinstance(node, cst.Name) and not isinstance(model.parent(node), cst.Attribute)


def _set_by_master(model: FileModel, name: cst.CSTNode, loop: Loop) -> cst.CSTNode | None:
    """The last line before a loop that sets a name, if only the master core comes there.

    Under a condition that the loop itself does not stand under.
    """
    text, order = model.tree.text(name).strip(), model.tree.order
    inside = {guard.node for guard in model.guards(loop.node)}
    lines = [
        line
        for line in model.nodes(cst.Assign, cst.AugAssign)
        if model.function_of(line) is loop.function and order[line] < order[loop.node]
        if isinstance(line, cst.Assign | cst.AugAssign)
        and any(model.tree.text(target).strip() == text for target in targets(line))
    ]
    last = lines[-1] if lines else _kept_by_master(model, name, loop)
    guard = model.master_only(last) if last is not None else None
    return last if guard is not None and guard.node not in inside else None


def _kept_by_master(model: FileModel, name: cst.CSTNode, loop: Loop) -> cst.CSTNode | None:
    """What the master alone gives ``self.start`` in another method, beside a number written out."""
    inside = set(walk(loop.node))
    made = model.kept_in(name) if isinstance(name, cst.Attribute) else ()
    read = [one for one in made if one not in inside and model.literal(one) is NotImplemented]
    return read[-1] if read and all(model.master_only(one) is not None for one in read) else None


def _leaves(
    model: FileModel,
    loop: Loop,
    node: cst.CSTNode,
    meetings: list[CallSite],
    told: set[cst.CSTNode],
) -> Iterator[Problem]:
    if isinstance(node, cst.Continue) and not _meet_behind(model, loop, node, meetings):
        return  # the step is over for this core too
    # What stands behind a condition that has been told has it too; each line within it counts.
    known = {guard.node for guard in model.guards(loop.node)} | told - {*model.tree.ancestors(node)}
    for guard in model.guards(node):
        value = model.value(guard.test)
        clock = _asks_clock(model, guard.test)
        signal = asks_signal(model, guard.test)
        own = own_norm(model, guard) or own_loss(model, guard)
        of_core = value.local or guard.master is not None or clock or own
        of_master = set_on_master(model, guard.test, loop)
        setter = signal or of_master
        empty = _lacks_batch(loop, node, guard)
        apart = bool(of_core) or setter is not None
        if guard.node in known or not (apart or empty) or ends_the_run(model, guard, node):
            continue
        if loop.kind not in _TRAINING and (guard.master is None or isinstance(node, cst.Continue)):
            continue
        told.add(guard.node)
        what = "skips the rest of a step" if isinstance(node, cst.Continue) else "leaves the loop"
        meeting = snippet(model, meetings[-1].node.func)
        yield model.problem(
            node,
            f"a core for which {snippet(model, guard.test)} holds {what} alone: the others wait "
            f"for it at {meeting}, so the run hangs or aborts",
            suggestion="give each core as many batches: choose the samples before the sampler "
            "shares them out, or fill up what collate_fn has left out"
            if empty
            else "decide on a value that is equal on all cores: xm.all_reduce(xm.REDUCE_MAX, flag)",
            related=[
                model.place(guard.written, _why_apart(clock=clock, signal=signal is not None)),
                *([model.place(setter, _who_sets(signal))] if setter is not None else []),
                model.place(meetings[-1].node, "where all cores have to meet"),
                loop_place(model, loop),
            ],
            fix=_fix(model, guard.written),
        )
        return


def _why_apart(*, clock: bool, signal: bool) -> str:
    if clock:
        return "by the clock of each core: true on one and false on another"
    if signal:
        return "set by a signal, which comes to each process in another step"
    return "may be true on one core and false on another"


def _who_sets(signal: cst.CSTNode | None) -> str:
    return "sets it, on the master core alone" if signal is None else "sets it, in each process"


def _meet_behind(model: FileModel, loop: Loop, node: cst.CSTNode, meetings: list[CallSite]) -> bool:
    """Whether cores meet in the part of a turn behind a node, also in what is called there."""
    order, inside = model.tree.order, set(walk(loop.node, into_functions=False))
    elsewhere = {meeting.node for meeting in meetings} - inside
    leading = [
        part
        for part in inside
        if isinstance(part, cst.Call) and any(one.node in elsewhere for one in model.reached(part))
    ]
    met = {meeting.node for meeting in meetings} if not leading else {*leading}
    met |= {meeting.node for meeting in meetings if meeting.node in inside}
    return any(order[one] > order[node] for one in met)


def _lacks_batch(loop: Loop, node: cst.CSTNode, guard: Guard) -> bool:
    """``if batch is None: continue``: what the loader of this core gives where all was left out."""
    test, over = guard.test, loop.node
    return (
        isinstance(node, cst.Continue)
        and guard.when
        and isinstance(over, cst.For)
        and loop.iterates.is_loader
        and isinstance(test, cst.Comparison)
        and isinstance(test.left, cst.Name)
        and test.left.value in names_in(over.target)
        and isinstance(test.comparisons[0].operator, cst.Is)
        and is_name(test.comparisons[0].comparator, "None")
    )


def _asks_clock(model: FileModel, node: cst.BaseExpression, depth: int = _DEEPEST) -> bool:
    """Whether a condition compares a time that each core reads from its own clock.

    Not where the cores agree on it there: ``xm.mesh_reduce("late", time.time() > end, max)``.
    """
    for part in walk(node):
        if isinstance(part, cst.Call) and (model.name(part.func) or "") in _CLOCKS:
            return not _agreed(model, part, node)
        if isinstance(part, cst.Name | cst.Attribute) and depth:
            made = model.assigned_to(part)
            if any(
                _is_time(model, value) and _asks_clock(model, value, depth - 1) for value in made
            ):
                return True
    return False


def _agreed(model: FileModel, part: cst.CSTNode, whole: cst.CSTNode) -> bool:
    """Whether a call around a part of an expression brings the values of the cores together."""
    around = {part, *model.tree.ancestors(part)} - set(model.tree.ancestors(whole))
    calls = (one for node in around if isinstance(node, cst.Call) for one in model.reached(node))
    return any(brings_together(model, one) for one in calls)


def _is_time(model: FileModel, node: cst.BaseExpression) -> bool:
    """Arithmetic of times: what a helper makes of one may have been agreed on by all cores."""
    calls = (part for part in walk(node) if isinstance(part, cst.Call))
    return all(
        (name := model.name(call.func) or "") in _CLOCKS or name.startswith("builtins.")
        for call in calls
    )


def _fix(model: FileModel, test: cst.BaseExpression) -> Fix | None:
    """``if torch.isnan(loss):`` asked of all cores: they skip the step together."""
    every = False
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, every = test.expression, True
    if not isinstance(test, cst.Call) or not model.value(test).is_device_tensor:
        return None
    asked = model.call(test)
    if (asked.method or "") not in _FLAGS and asked.name not in _FLAGS:
        return None
    reduce = spell(model, test, f"{_XM}.all_reduce")
    how = spell(model, test, f"{_XM}.REDUCE_{'MIN' if every else 'MAX'}")
    if reduce is None or how is None:
        return None
    content = f"{reduce[0]}({how[0]}, {model.tree.text(test).strip()}.float())"
    return model.fix(
        "Decide together", model.replace(test, content), [*dict.fromkeys(reduce[1])], safe=False
    )
