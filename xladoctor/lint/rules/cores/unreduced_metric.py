"""XLA427: the master core tells, or all cores decide by, the metric of one shard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Equal
from xladoctor.lint.model import Kind, LoopKind, walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.frameworks import LIGHTNING_EVALS
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import entry_places, trainer_of_cores
from xladoctor.lint.rules._lightning import logged_by_each_core
from xladoctor.lint.rules._lightning_hooks import EVALUATED, hooks_of, is_lightning
from xladoctor.lint.rules._loaders import (
    DATA_LOADER,
    loops_by_callers,
    loops_over,
    says_evaluation,
)
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Function, Loop, Problem

_MASTER_PRINT = "torch_xla.core.xla_model.master_print"
#: Calls that keep or show what the master core has.
_TELLS = ("builtins.print", _MASTER_PRINT, "torch.save", "wandb.log", "logging.info")
#: Methods of loggers and of what writes summaries, by what people call these.
_LOGS = ("info", "warning", "log", "log_metrics", "add_scalar", "add_scalars")
_LOGGER = re.compile(r"log|writer|summary|board|wandb|mlflow|neptune|\brun$", re.IGNORECASE)
#: Methods that bring the values of the cores together.
_GATHERS = frozenset({"gather", "reduce", "gather_for_metrics", "synchronize"})
_SCORES = ("sklearn.metrics.", "scipy.stats.")
#: What tells how much there is, and not how good it is.
_COUNTS = frozenset({"builtins.len", "builtins.range", "builtins.str", "builtins.type"})
#: Through how many names a score is followed to what it was computed of.
_DEPTH = 3
_KINDS = frozenset({Kind.NUMBER, Kind.ARRAY, Kind.UNKNOWN, Kind.DEVICE_TENSOR, Kind.CPU_TENSOR})


@rule("XLA427")
def unreduced_metric(model: FileModel) -> Iterator[Problem]:
    """Find metrics of sharded evaluation loops that one core tells, or decides by, alone."""
    if not model.is_xla or model.spmd:
        return
    if "lightning" in model.frameworks:
        yield from _in_lightning(model)
    if model.led_by:
        return
    evaluations = list(_sharded_evaluations(model))
    sharded = [loop for loop in evaluations if not _is_reduced(model, loop)]
    partly = [loop for loop in evaluations if loop not in sharded]
    shared = dict(_evaluations_of_both(model))
    if not evaluations and not shared:
        return
    for call in (*model.calls(*_TELLS), *_logs(model)):
        entry = model.on_every_core(call.node)
        alone = call.name == _MASTER_PRINT or model.master_only(call.node) is not None
        if entry is None or not alone or model.hot_loop(call.node) is not None:
            continue
        metric = _metric(model, call, sharded) or _given_back(model, call, shared)
        over = [*sharded, *shared.values()]
        if metric is None:
            over = [loop for loop in partly if loop.function is call.function]
            metric = next(filter(None, (_left_out(model, call, loop) for loop in over)), None)
        if metric is None:
            continue
        yield model.problem(
            call.node,
            f"{snippet(model, metric)} was computed from this core's shard of the evaluation data: "
            "what the master core reports is the metric of one shard",
            suggestion='reduce it first, on all cores: xm.mesh_reduce("metric", metric, mean)',
            related=[
                *(model.place(loop.node, "goes over this core's shard") for loop in over[:1]),
                *entry_places(model, entry),
            ],
        )


def _logs(model: FileModel) -> Iterator[CallSite]:
    """``logger.info(...)``, ``writer.add_scalar(...)``."""
    for call in model.methods(*_LOGS):
        held = dotted_text(call.receiver) if call.receiver is not None else None
        if call.name is None and held is not None and _LOGGER.search(held):
            yield call


def _in_lightning(model: FileModel) -> Iterator[Problem]:
    """``self.log("val_loss", loss)`` in an evaluation on several cores, without ``sync_dist``."""
    trainer: CallSite | None = None
    for owner in model.classes:
        if not is_lightning(model, owner):
            continue
        for call in logged_by_each_core(model, owner):
            if hooks_of(model, call.node).isdisjoint(LIGHTNING_EVALS | EVALUATED):
                continue
            trainer = trainer or trainer_of_cores(model)
            if trainer is None:
                return
            yield model.problem(
                call.node,
                "each core logs the mean of its own shard of the evaluation data: what the logger "
                "shows, and what checkpoints are chosen by, is the metric of one shard",
                suggestion="sync_dist=True",
                related=[model.place(trainer.node, "several cores")],
                fix=model.fix(
                    "Log the mean over the cores",
                    model.add_argument(call.node, "sync_dist=True"),
                    safe=False,
                ),
            )


def _sharded_evaluations(model: FileModel) -> Iterator[Loop]:
    """Evaluation loops over a loader with a sampler: each core sees a part of the data."""
    makers = [call for one in (model, *model.linked) for call in one.calls(DATA_LOADER)]
    for maker in makers:
        sampler = maker.keywords.get("sampler")
        if sampler is None or model.value(sampler).kind is not Kind.SAMPLER:
            continue
        for loop in loops_over(model, maker):
            if loop.kind is LoopKind.EVAL:
                yield loop


def _evaluations_of_both(model: FileModel) -> Iterator[tuple[cst.CSTNode, Loop]]:
    """``run_epoch(net, val_loader)``, of a function that trains too: the call, and its loop."""
    for maker in model.calls(DATA_LOADER):
        sampler = maker.keywords.get("sampler")
        if sampler is None or model.value(sampler).kind is not Kind.SAMPLER:
            continue
        for loop, call in loops_by_callers(model, maker):
            if says_evaluation(model, maker.node) and not _is_reduced(model, loop):
                yield call.node, loop


def _given_back(
    model: FileModel, call: CallSite, shared: dict[cst.CSTNode, Loop]
) -> cst.BaseExpression | None:
    """A name that holds nothing but what such evaluations gave."""
    for argument in call.node.args if shared else ():
        for node in model.within(argument.value, cst.Name):
            made = model.made_of(node)
            if made and all(one in shared for one in made) and model.value(node).kind in _KINDS:
                return node
    return None


def _is_reduced(model: FileModel, loop: Loop) -> bool:
    """Whether the function around the loop reduces something over the cores."""
    if loop.function is None:
        return False
    return any(_brings_together(model, call) for call in model.reached(loop.function.node))


def _brings_together(model: FileModel, call: CallSite) -> bool:
    return model.effects.equals(call, Equal.RESULT) or call.method in _GATHERS


def _left_out(model: FileModel, call: CallSite, loop: Loop) -> cst.Name | None:
    """A sum of the loop, or what is computed of some, of which the function reduces others alone.

    None where a reduction has no names of its own: it may be of anything.
    """
    if loop.function is None:
        return None
    reduced: set[str] = set()
    for one in model.calls():
        anything = one.method in _GATHERS
        if one.function is not loop.function or not (anything or _reduces(model, one.node)):
            continue
        given = {name for item in one.node.args for name in names_in(item.value)}
        inside = any(part is loop.node for part in model.tree.ancestors(one.node))
        if not given or inside or anything:
            return None
        reduced |= given
    together = _behind(model, loop.function, reduced)
    sums = _sums(model, loop)
    for name in (name for item in call.node.args for name in _names(model, item.value)):
        if model.value(name).kind not in _KINDS:
            continue
        made = [one for one in model.assigned_to(name) if model.row(one) > model.row(loop.node)]
        read = {name.value, *(part.value for one in made for part in _names(model, one))}
        if read & sums and not read & together:
            return name
    return None


def _names(model: FileModel, node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names in an expression that stand for themselves, not those of attributes."""
    for part in walk(node):
        parent = model.parent(part)
        is_attribute = isinstance(parent, cst.Attribute) and parent.attr is part
        if isinstance(part, cst.Name) and not is_attribute:
            yield part


def _behind(model: FileModel, function: Function, names: set[str]) -> set[str]:
    """Names, and what a function computes them of: ``both = torch.stack([hits, count])``."""
    lines = [
        (names_in(target.target), names_in(line.value))
        for line in model.within(function.node, cst.Assign)
        for target in line.targets
    ]
    found, before = set(names), 0
    while len(found) > before:
        before = len(found)
        for targets, value in lines:
            if targets & found:
                found |= value
    return found


def _sums(model: FileModel, loop: Loop) -> set[str]:
    """The names of what a loop adds up, and not of how many that were."""
    return {
        line.target.value
        for line in model.within(loop.node, cst.AugAssign)
        if isinstance(line.target, cst.Name) and not _counts(model, line.value)
    }


def _counts(model: FileModel, added: cst.BaseExpression) -> bool:
    """``1``, ``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    if isinstance(added, cst.Call):
        call = model.call(added)
        return call.name in _COUNTS or call.method in {"size", "numel"}
    return isinstance(added, cst.Integer) or (
        isinstance(added, cst.Subscript) and "shape" in names_in(added)
    )


def _metric(model: FileModel, call: CallSite, loops: list[Loop]) -> cst.BaseExpression | None:
    """What an evaluation loop, or its function, has computed: a name, or the function's call."""
    functions = {loop.function for loop in loops if loop.function is not None}
    for argument in call.node.args:
        for node in walk(argument.value):
            if isinstance(node, cst.Name) and _is_metric(model, node, loops):
                return node
            if isinstance(node, cst.Call) and model.call(node).target in functions:
                value = model.value(node)
                if value.local and value.kind in _KINDS:
                    return node
            elif isinstance(node, cst.Call):
                shown = (model.call(node).name or "").startswith(_SCORES)
                if shown and _is_score(model, node, loops):
                    return node
    return None


def _is_metric(model: FileModel, node: cst.Name, loops: list[Loop]) -> bool:
    value = model.value(node)
    if not value.local or value.kind not in _KINDS:
        return False
    made = model.assigned_to(node)
    if not made or any(_reduces(model, one) for one in made):
        return False
    return any(_comes_from(model, one, loop) for one in made for loop in loops) or any(
        isinstance(one, cst.Call) and _is_score(model, one, loops) for one in made
    )


def _reduces(model: FileModel, made: cst.CSTNode) -> bool:
    """Whether anything in an expression brings the values of the cores together."""
    return any(
        model.effects.equals(one, Equal.RESULT)
        for call in model.calls_in(made)
        for one in ((call,) if call.target is None else model.reached(call.node))
    )


def _is_score(model: FileModel, made: cst.Call, loops: list[Loop]) -> bool:
    """``roc_auc_score(truths, predictions)`` of what the function of an evaluation gave."""
    if model.call(made).name in _COUNTS:
        return False
    functions = {loop.function for loop in loops if loop.function is not None}
    waiting: list[tuple[cst.CSTNode, int]] = [(made, 0)]
    seen: set[cst.CSTNode] = set()
    while waiting:
        node, depth = waiting.pop()
        if node in seen or depth > _DEPTH:
            continue
        seen.add(node)
        if isinstance(node, cst.Call) and model.call(node).target in functions:
            return True
        if _reduces(model, node):
            continue
        for part in walk(node):
            if isinstance(part, cst.Name):
                # Also as one of several: ``outputs, truths = evaluate()``.
                waiting += [(one, depth + 1) for one in model.made_of(part) if one is not None]
    return False


def _comes_from(model: FileModel, made: cst.CSTNode, loop: Loop) -> bool:
    """The result of a call of the loop's function, or computed in or behind the loop."""
    if isinstance(made, cst.Call) and model.call(made).target is loop.function:
        return loop.function is not None
    if model.function_of(made) is not loop.function:
        return False
    return any(part is loop.node for part in model.tree.ancestors(made)) or _reads_of(made, loop)


def _reads_of(made: cst.CSTNode, loop: Loop) -> bool:
    """``accuracy = correct / total`` with names that the loop adds up."""
    added = {
        part.target.value
        for part in walk(loop.node)
        if isinstance(part, cst.AugAssign) and isinstance(part.target, cst.Name)
    }
    return any(isinstance(part, cst.Name) and part.value in added for part in walk(made))
