"""XLA419: a scheduler is given a number that differs from core to core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind, walk
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.frameworks import TRAINER_METRICS
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import CoresOfTrainer, trainer_of_cores
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._lightning import logged_by_each_core
from xladoctor.lint.rules._lightning_hooks import is_lightning, logged_names
from xladoctor.lint.rules._protocol import reduces_gradients
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Class, FileModel, Function, Guard, Problem
    from xladoctor.lint.model.problems import Place

_PLATEAU = "ReduceLROnPlateau"
#: What gives the same number.
_SAME = frozenset({"detach", "item", "cpu", "float", "mean"})
_WORDS = ("loss", "acc", "metric", "score", "auc", "perplexity", "error")


@rule("XLA419")
def local_metric_schedule(model: FileModel) -> Iterator[Problem]:
    """Find ``scheduler.step(metric)`` with a metric that was not reduced over the cores."""
    if not model.is_xla or model.spmd:
        return
    if "lightning" in model.frameworks:
        yield from _in_lightning(model)
    reduced = "accelerate" in model.led_by or reduces_gradients(model)
    if model.looped_by or not reduced:
        return  # without a reduction each core trains a model of its own, perhaps on purpose
    yield from _on_the_master(model)
    for call in model.methods("step"):
        metric = call.argument(0, "metrics")
        if metric is None or call.receiver is None or not _is_scheduler(model, call):
            continue
        guard = _only_on_master(model, metric)
        entry = model.on_every_core(call.node)
        if guard is None and (entry is None or not model.value(metric).local):
            continue
        if model.master_only(call.node) is not None:
            continue
        related: list[Place] = []
        why = "was computed from this core's own batches"
        if guard is not None:
            why = "is computed on the master core only"
            related.append(model.place(guard.written, "only the master core gets here"))
        yield model.problem(
            call.node,
            f"{snippet(model, metric)} {why}: the cores choose different learning rates, and their "
            "models drift apart",
            suggestion='reduce it first, on all cores: xm.mesh_reduce("metric", metric, mean)',
            related=related,
        )


def _on_the_master(model: FileModel) -> Iterator[Problem]:
    """``if xm.is_master_ordinal(): scheduler.step()``: each scheduler once for a condition."""
    told = set()
    for call in model.methods("step"):
        if call.receiver is None or not _is_scheduler(model, call):
            continue
        guard = model.master_only(call.node)
        if guard is None or model.in_step_closure(call.node):
            continue
        which = guard.node, model.tree.text(call.receiver).strip()
        if which in told:
            continue
        told.add(which)
        yield model.problem(
            call.node,
            "only the master core gets here: the learning rate of the others stays as it was, and "
            "the cores' models drift apart",
            suggestion="step the scheduler on all cores",
            related=[model.place(guard.written, "only the master core gets here")],
        )


def _in_lightning(model: FileModel) -> Iterator[Problem]:
    """``"monitor": "val_loss"`` beside a plateau, of a value that each core logs for itself."""
    trainer: CoresOfTrainer | None = None
    for owner in model.classes:
        made = owner.methods.get("configure_optimizers")
        if made is None or not is_lightning(model, owner):
            continue
        plateau = next(_plateaus(model, made), None)
        trainer = trainer or (trainer_of_cores(model) if plateau is not None else None)
        if plateau is None or trainer is None:
            continue
        yield from _by_hand(model, owner, plateau, trainer)
        for call in logged_by_each_core(model, owner):
            followed = logged_names(model, call) & _monitored(model, made)
            name = call.argument(0, "name")
            if not followed:
                continue
            said = repr(min(map(str, followed))) if name is None else snippet(model, name)
            yield model.problem(
                call.node,
                f"{said} is the number of each core's own batches, and "
                "ReduceLROnPlateau follows it: the cores choose different learning rates, and "
                "their models drift apart",
                suggestion="sync_dist=True",
                related=[
                    model.place(plateau.node, "follows it"),
                    *trainer.places(model),
                ],
                fix=model.fix(
                    "Log the mean over the cores",
                    model.add_argument(call.node, "sync_dist=True"),
                    safe=False,
                ),
            )


def _by_hand(
    model: FileModel, owner: Class, plateau: CallSite, trainer: CoresOfTrainer
) -> Iterator[Problem]:
    """``self.lr_schedulers().step(loss)`` with a number of each core's own.

    Also ``self.plateau.step(loss)`` of what ``configure_optimizers`` keeps.
    """
    for call in model.methods("step"):
        metric = call.argument(0, "metrics")
        if call.function is None or call.function.owner is not owner or metric is None:
            continue
        held = _is_of_lightning(model, call) or _is_kept(model, call, plateau)
        if not held or not _differs(model, owner, metric):
            continue
        yield model.problem(
            call.node,
            f"{snippet(model, metric)} is the number of each core's own batches, and "
            "ReduceLROnPlateau follows it: the cores choose different learning rates, and their "
            "models drift apart",
            suggestion="self.log(name, value, sync_dist=True), and "
            'self.trainer.callback_metrics["name"] at the end of the epoch',
            related=[
                model.place(plateau.node, "follows it"),
                *trainer.places(model),
            ],
        )


def _is_of_lightning(model: FileModel, step: CallSite) -> bool:
    """``self.lr_schedulers().step(...)``, also by a name."""
    held = step.receiver
    made = model.assigned_once(held) if isinstance(held, cst.Name | cst.Attribute) else held
    return isinstance(made, cst.Call) and model.call(made).method == "lr_schedulers"


def _plateaus(model: FileModel, made: Function) -> Iterator[CallSite]:
    """``ReduceLROnPlateau(optimizer)``, and ``isinstance(scheduler, ReduceLROnPlateau)``."""
    calls = model.calls_of(made)
    yield from (call for call in calls if call.last == _PLATEAU)
    for call in calls:
        asked = call.positional[1:] if call.name == "builtins.isinstance" else []
        if any(last_name(one) == _PLATEAU for one in asked):
            yield call


def _is_kept(model: FileModel, step: CallSite, plateau: CallSite) -> bool:
    """``self.plateau.step(...)``, where the object keeps what follows a metric there."""
    held = step.receiver
    if not isinstance(held, cst.Attribute) or not is_name(held.value, "self"):
        return False
    if plateau.last == _PLATEAU:
        kept = plateau.node
        return any(
            one is kept or (isinstance(one, cst.Name) and model.assigned_once(one) is kept)
            for one in model.kept_in(held)
        )
    asked = plateau.positional[0]
    return any(
        isinstance(one, cst.Name)
        and is_name(asked, one.value)
        and any(guard.when and guard.test is plateau.node for guard in model.guards(one))
        for one in model.kept_in(held)
    )


def _differs(model: FileModel, owner: Class, metric: cst.BaseExpression) -> bool:
    """Whether the cores have different numbers; of what was logged, by how it was."""
    if not any(
        isinstance(part, cst.Attribute) and part.attr.value in TRAINER_METRICS
        for part in walk(metric)
    ):
        return model.value(metric).local or _is_loss_of_step(model, metric)
    keys = {model.literal(part) for part in walk(metric) if isinstance(part, cst.SimpleString)}
    return any(logged_names(model, call) & keys for call in logged_by_each_core(model, owner))


def _is_loss_of_step(model: FileModel, metric: cst.BaseExpression) -> bool:
    """``loss.detach()`` of the loss that ``training_step`` returns: of the core's own batch."""
    function = model.function_of(metric)
    if function is None or function.name != "training_step":
        return False
    while isinstance(metric, cst.Call) and model.call(metric).method in _SAME:
        receiver = model.call(metric).receiver
        if receiver is None:
            return False
        metric = receiver
    return isinstance(metric, cst.Name) and any(
        is_name(one, metric.value) for one in returned(function)
    )


def _monitored(model: FileModel, function: Function) -> set[object]:
    """What the schedule of ``configure_optimizers`` follows."""
    return {
        model.literal(node.value)
        for node in walk(function.node.body)
        if (isinstance(node, cst.DictElement) and model.literal(node.key) == "monitor")
        or (isinstance(node, cst.Arg) and is_name(node.keyword, "monitor"))
    } - {NotImplemented}


def _is_scheduler(model: FileModel, call: CallSite) -> bool:
    assert call.receiver is not None
    kind = model.value(call.receiver).kind
    if kind is Kind.SCHEDULER:
        return True
    last = call.receiver.attr if isinstance(call.receiver, cst.Attribute) else call.receiver
    return kind is Kind.UNKNOWN and isinstance(last, cst.Name) and "sched" in last.value.lower()


def _only_on_master(model: FileModel, metric: cst.BaseExpression) -> Guard | None:
    """The condition that keeps the other cores from computing a metric, if all they have is 0."""
    if not isinstance(metric, cst.Name) or not any(w in metric.value.lower() for w in _WORDS):
        return None
    found: Guard | None = None
    for node in assigned(model, metric):
        guard = model.master_only(node)
        if guard is not None:
            found = guard
        elif model.literal(node) is NotImplemented and not _all_literal(model, node):
            return None  # the other cores get something too
    return found


def _all_literal(model: FileModel, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Tuple) and model.literal(node) is not NotImplemented
