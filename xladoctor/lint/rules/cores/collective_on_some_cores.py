"""XLA405: a collective that only some cores reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Effect
from xladoctor.lint.model import Function, Kind, LoopKind, walk
from xladoctor.lint.model.frameworks import LIGHTNING_TRAINER
from xladoctor.lint.rewrites.moves import out_of_condition
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import ends_the_run, trainer_of_cores
from xladoctor.lint.rules._ended import nothing_pending
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._lightning_hooks import is_lightning, logs, run_by_lightning
from xladoctor.lint.rules._meetings import all_cores_meet
from xladoctor.lint.rules._metrics import computed_by_some
from xladoctor.lint.rules._norms import guard_by_norm
from xladoctor.lint.rules._own_losses import guard_by_loss
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._sources import made_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem

_XM = "torch_xla.core.xla_model."
_SAVE = _XM + "save"
_JOINS = "torch.distributed.init_process_group"
_ONE_BY_ONE = ("torch_xla.distributed.xla_multiprocessing.MpSerialExecutor",)


@rule("XLA405")
def collective_on_some_cores(model: FileModel) -> Iterator[Problem]:
    """Find collectives behind a condition that may be true on one core and false on another."""
    if not model.is_xla or model.spmd:
        return
    # The optimizer that Accelerate prepares reduces the gradients in its step.
    steps = [Effect.OPTIMIZER_STEP] if "accelerate" in model.led_by else []
    told: set[cst.CSTNode] = set()
    for event in model.effects.of(Effect.COLLECTIVE, Effect.SAVE, *steps):
        call = event.call
        guard = model.effects.some_cores(event.node) or _by_its_own(model, event.node)
        if (
            call is None
            or guard is None
            or (model.on_every_core(call.node) is None and guard.master is None)
            or _behind_the_cores(model, call)
            or _among_masters(model, call)
        ):
            continue
        if call.name == _SAVE and (
            _own_file(model, call)
            or _called_from_elsewhere(model, call)
            or _nobody_hangs(model, call, guard)
            or _is_guessed(model, guard)
        ):
            continue
        if all_cores_meet(model, event, call, guard) or _is_left(model, call, guard):
            continue
        if ends_the_run(model, guard, call.node):
            continue
        here = _under(model, call, guard)
        yield model.problem(
            here,
            _message(model, call, guard),
            suggestion=_advice(call, guard),
            related=[
                model.place(guard.written, "may be true on one core and false on another"),
                *([model.place(call.node, "all cores have to come here")] * (here != call.node)),
            ],
            fix=_fix(model, call, guard),
        )
        for other, by in _elsewhere(model, call, here):
            if other not in told:
                told.add(other)
                yield model.problem(
                    other,
                    _message(model, call, by),
                    suggestion=_advice(call, by),
                    related=[model.place(call.node, "all cores have to come here")],
                )
    yield from _in_a_helper(model)
    yield from _behind_a_lock(model)
    yield from _logged_by_some(model)
    for call, guard in computed_by_some(model):
        yield model.problem(
            call.node,
            "compute() of torchmetrics gathers the counts of all cores, and only some reach it: "
            "the run hangs",
            suggestion="call compute() on all cores, and print or save its result on one",
            related=[model.place(guard.written, "may be true on one core and false on another")],
        )


def _by_its_own(model: FileModel, node: cst.CSTNode) -> Guard | None:
    """The condition on a norm or a loss of each core's own."""
    return guard_by_norm(model, node) or guard_by_loss(model, node)


def _in_a_helper(model: FileModel) -> Iterator[Problem]:
    """``if torch.isfinite(norm): step(optimizer)``, where ``step`` reduces the gradients."""
    for call in model.calls():
        guard = _by_its_own(model, call.node) if isinstance(call.target, Function) else None
        if guard is None or model.on_every_core(call.node) is None:
            continue
        met = next((one for one in model.reached(call.node) if one.name == OPTIMIZER_STEP), None)
        if met is None or _is_left(model, call, guard) or ends_the_run(model, guard, call.node):
            continue
        yield model.problem(
            call.node,
            _message(model, met, guard),
            suggestion=_advice(met, guard),
            related=[
                model.place(guard.written, "may be true on one core and false on another"),
                model.place(met.node, "all cores have to come here"),
            ],
        )


def _logged_by_some(model: FileModel) -> Iterator[Problem]:
    """``if self.global_rank == 0: self.log(name, value, sync_dist=True)`` of Lightning."""
    if "lightning" not in model.frameworks or trainer_of_cores(model) is None:
        return
    for call, _, owner in logs(model):
        if not is_lightning(model, owner) or given_true(model, call, "sync_dist") is None:
            continue
        guard = model.effects.some_cores(call.node)
        if guard is not None:
            yield model.problem(
                call.node,
                "sync_dist=True is a collective of all cores, and only some reach it: the run "
                "hangs",
                suggestion="log on all cores, or without sync_dist and with rank_zero_only=True",
                related=[
                    model.place(guard.written, "may be true on one core and false on another")
                ],
            )


def _behind_the_cores(model: FileModel, call: CallSite) -> bool:
    """``trainer.save_checkpoint(path)`` of a script whose Trainer has ended the cores by then."""
    trainer = (
        call.receiver is not None and model.value(call.receiver).type_name == LIGHTNING_TRAINER
    )
    function = call.function
    return trainer and (function is None or run_by_lightning(model, function) is None)


def _among_masters(model: FileModel, call: CallSite) -> bool:
    """``dist.all_reduce(x)`` of a process group that the masters of the hosts alone have joined."""
    parts = (model, *model.linked)
    joined = [(part, one) for part in parts for one in part.calls(_JOINS)]
    return (
        (call.name or "").startswith("torch.distributed.")
        and bool(joined)
        and all(part.master_only(one.node) is not None for part, one in joined)
    )


def _elsewhere(
    model: FileModel, call: CallSite, here: cst.CSTNode
) -> Iterator[tuple[cst.CSTNode, Guard]]:
    """The other calls of what leads to the collective that the master alone makes."""
    target = model.call(here).target if isinstance(here, cst.Call) else None
    if here is call.node or not isinstance(target, Function):
        return
    for caller in model.callers(target):
        guards = (guard for guard in model.guards(caller.node) if guard.master is not None)
        guard = next(guards, None)
        if guard is not None and caller.node is not here and model.is_here(caller.node):
            yield caller.node, guard


def _is_left(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """``if torch.isnan(loss): continue`` before the collective: XLA420 tells that at its line."""
    by_step = call.name != OPTIMIZER_STEP and call.method == "step"
    if (model.led_by and not by_step) or guard.node in model.tree.ancestors(call.node):
        return False
    loop = model.step_loop(call.node) or model.loop(call.node)
    return (
        loop is not None
        and loop.kind in {LoopKind.STEP, LoopKind.EPOCH}
        and any(
            isinstance(part, cst.Continue | cst.Break) and model.loop(part) is loop
            for part in walk(guard.node, into_functions=False)
        )
    )


def _under(model: FileModel, call: CallSite, guard: Guard, depth: int = 4) -> cst.CSTNode:
    """What stands under the condition: the collective, or the call that leads to it."""
    waiting, seen = [call], {call.node}
    for _ in range(depth):
        for one in waiting:
            under = model.guards(one.node) if model.is_here(one.node) else ()
            if any(other.node is guard.node for other in under):
                return one.node
        further = [
            caller
            for one in waiting
            for caller in (model.callers(one.function) if one.function is not None else ())
            if caller.node not in seen
        ]
        seen |= {one.node for one in further}
        waiting = further
    return call.node


def _behind_a_lock(model: FileModel) -> Iterator[Problem]:
    """``MpSerialExecutor().run(load)``: one core at a time, so a meeting in it never ends."""
    for call in model.methods("run"):
        if call.receiver is None or made_in(model, call.receiver, _ONE_BY_ONE) is None:
            continue
        given = call.argument(0, "fn")
        function = model.value(given).function if given is not None else None
        inside = model.reached(function.node) if function is not None else ()
        meeting = next((inner for inner in inside if _meets(model, inner)), None)
        if meeting is not None:
            yield model.problem(
                call.node,
                "one core at a time runs this and keeps the lock while it waits for the others, "
                "which wait for the lock: the program hangs",
                suggestion="call it without the executor, or take the meeting out of it",
                related=[model.place(meeting.node, "all cores have to come here")],
            )


def _meets(model: FileModel, call: CallSite) -> bool:
    """Whether the cores meet at the call itself."""
    name = model.effects.name(call)
    return name is not None and Effect.COLLECTIVE in name.effects and not name.pending


def _own_file(model: FileModel, call: CallSite) -> bool:
    """``master_only=False``: each core writes its own file, nobody waits."""
    given = call.argument(2, "master_only")
    return given is not None and model.literal(given) is False


def _is_guessed(model: FileModel, guard: Guard) -> bool:
    """Whether a function that nobody has read asks for the master by its name alone.

    xm.save on the master meets nobody by itself; what is pending then would be a guess as well.
    """
    asked = (model.value(part) for part in walk(guard.test) if isinstance(part, cst.Call))
    return any(value.kind is Kind.IS_MASTER and not value.certain for value in asked)


def _called_from_elsewhere(model: FileModel, call: CallSite) -> bool:
    """A function that saves, and nobody here calls: what is pending then is not known."""
    return model.on_every_core(call.node) is None and model.step_loop(call.node) is None


def _nobody_hangs(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """Whether the graph has ended before, on all cores: then no collective is pending.

    The usual forms: a rendezvous first, then the master's part; or the end of an epoch, after a
    loop over a device loader, which ends the last graph too. Where each core decides by a number
    of its own, that what the master's says is written is still told, unless they have met for it.
    """
    if not nothing_pending(model, call.node, call.function, guard):
        return False
    return guard.master is not None or model.master_only(call.node) is not None


def _spelled(model: FileModel, call: CallSite) -> str:
    if call.name is not None or call.receiver is None:
        return call.name or ""
    return f"{model.tree.text(call.receiver).strip()}.{call.method}"


def _message(model: FileModel, call: CallSite, guard: Guard) -> str:
    name = _spelled(model, call).replace(_XM, "xm.").replace("torch.distributed.", "dist.")
    condition = snippet(model, guard.test)
    who = "only the master core" if guard.master else f"only the cores where {condition} holds"
    if not guard.when and not guard.master:
        who = f"only the cores where {condition} does not hold"
    if call.name == _SAVE:
        return (
            f"{who} calls xm.save: it materializes tensors, and where a collective is pending "
            "the run hangs"
            if guard.master
            else f"{who} call xm.save: each core decides by itself, the master's number says what "
            "is written, and where a collective is pending the run hangs"
        )
    verb = "reaches" if guard.master else "reach"
    return f"{who} {verb} {name}: it waits for all cores, so the run hangs or aborts"


def _advice(call: CallSite, guard: Guard) -> str:
    if guard.master is not None:
        if call.name == _SAVE:
            return "call xm.save on all cores: it writes on the master only"
        return "move the call out of the condition, so that all cores reach it"
    return (
        "decide on a value that is equal on all cores: reduce it first with xm.mesh_reduce or "
        "xm.all_reduce"
    )


def _fix(model: FileModel, call: CallSite, guard: Guard) -> Fix | None:
    """Let all cores come to the call: before or behind the condition, or with one decision."""
    if not model.is_here(guard.node) or model.core_guard(guard.node) is not None:
        return None  # the condition may stand around a call in another file
    if guard.master is not None:
        edits = out_of_condition(model, call.node, guard.node)
        return model.fix("Call it on all cores", edits, safe=False) if edits else None
    return _one_decision(model, guard)


def _one_decision(model: FileModel, guard: Guard) -> Fix | None:
    """Replace the number that each core decides by with its mean over the cores.

    Only outside of loops over batches, where it would be a meeting on every step.
    """
    spelled = model.spelled(_XM + "mesh_reduce", guard.node)
    if spelled is None or not isinstance(guard.node, cst.If) or model.hot_loop(guard.node):
        return None
    if not isinstance(guard.test, cst.Comparison) or not isinstance(
        model.parent(guard.node), cst.IndentedBlock
    ):
        return None
    names = {
        part.value: model.value(part)
        for part in walk(guard.test)
        if isinstance(part, cst.Name) and model.value(part).local
    }
    # `best` was this core's value in an earlier epoch: it follows by itself.
    left = guard.test.left
    if not isinstance(left, cst.Name) or left.value not in names:
        return None
    if names[left.value].kind not in {Kind.NUMBER, Kind.ARRAY}:
        return None
    name = left.value
    return model.fix(
        "Decide by the mean over the cores",
        model.insert_before(
            guard.node,
            f'{name} = {spelled}("{name}", {name}, lambda cores: sum(cores) / len(cores))',
        ),
        safe=False,
    )
