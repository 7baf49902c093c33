"""XLA427: the master core tells, or all cores decide by, the metric of one shard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, children
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.frameworks import LIGHTNING_EVALS
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import (
    CoresOfTrainer,
    entry_places,
    says_core,
    trainer_of_cores,
)
from xladoctor.lint.rules._given_names import GivenNames
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._lightning import logged_by_each_core
from xladoctor.lint.rules._lightning_hooks import EVALUATED, hooks_of, is_lightning
from xladoctor.lint.rules._loaders import DATA_LOADER, loops_over
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._sharded_loaders import ShardedLoaders, shares
from xladoctor.lint.rules._shards import Shards
from xladoctor.lint.rules._sources import made_in
from xladoctor.lint.rules._summed import divided_by_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

_MASTER_PRINT = "torch_xla.core.xla_model.master_print"
#: Calls that print, or write a file.
_WRITES = ("builtins.print", "json.dump", "tqdm.tqdm.write", "pprint.pprint", "rich.print")
#: Calls that keep or show what the master core has.
_TELLS = (
    *_WRITES, _MASTER_PRINT, "torch.save", "wandb.log", "logging.info", "mlflow.log_metric",
    "mlflow.log_metrics", "swanlab.log",
)  # fmt: skip
#: Methods of loggers and of what writes summaries, by what people call these.
_LOGS = ("info", "warning", "log", "log_metrics", "log_metric", "add_scalar", "add_scalars")
_LOGGER = re.compile(r"log|writer|summary|board|wandb|mlflow|neptune|tracker|\brun$", re.IGNORECASE)
#: What only writes a number as a text, or reads it.
_SHOWS = frozenset(f"builtins.{name}" for name in ("str", "float", "round", "int", "dict", "repr"))
_READS = frozenset({"format", "item", "tolist", "cpu", "detach", "numpy", "join"})


@rule("XLA427")
def unreduced_metric(model: FileModel) -> Iterator[Problem]:
    """Find metrics of sharded evaluation loops that one core tells, or decides by, alone."""
    if not model.is_xla or model.spmd:
        return
    if "lightning" in model.frameworks:
        yield from _in_lightning(model)
    yield from _of_all_by_one(model)
    if "lightning" in model.led_by or not _has_shards(model):
        return
    names = GivenNames(model)
    evaluations = list(_sharded_evaluations(model))
    shards = Shards(model, names, ShardedLoaders(model, names, evaluations))
    for call, alone in _tellers(model, shards):
        entry = model.on_every_core(call.node)
        if entry is None:
            continue
        alone = alone or _alone(model, call)
        if not alone and _is_of_each(model, call):
            continue
        told = _metric(model, call, shards)
        if told is None:
            continue
        metric, loop = told
        if model.eval_loop(call.node) is loop:
            continue  # how far it has come
        by_accelerate = model.led_by & {"accelerate", "transformers"}
        yield model.problem(
            call.node,
            f"{snippet(model, metric)} was computed from this core's shard of the evaluation data: "
            + (
                "what the master core reports is the metric of one shard"
                if alone
                else "each core reports the metric of its own shard as that of the whole"
            ),
            suggestion="bring it together first, on all cores: "
            + (
                "accelerator.gather_for_metrics((predictions, labels)), for each batch"
                if by_accelerate
                else 'xm.mesh_reduce("metric", metric, mean)'
            ),
            related=[
                model.place(loop.node, "goes over this core's shard"),
                *entry_places(model, entry),
            ],
        )


def _of_all_by_one(model: FileModel) -> Iterator[Problem]:
    """The sum over all cores, divided by the batches of one."""
    for division, total, loader in divided_by_share(model):
        held = snippet(model, loader)
        yield model.problem(
            division,
            f"this is the sum over all cores, and len({held}) counts the batches of one: the "
            "figure is as many times too large as there are cores",
            suggestion="divide by the number of cores too (xr.world_size()), or reduce the "
            "number of batches as well",
            related=[model.place(total.node, "summed over all cores here")],
        )


def _tellers(model: FileModel, shards: Shards) -> Iterator[tuple[CallSite, bool]]:
    """The calls that tell something, each with whether the master core alone does so inside.

    Of a helper (``def log(self, text): xm.master_print(text)``) its calls, each for itself, where
    what it is given is not the metric of one shard each time.
    """
    told: dict[cst.CSTNode, None] = {}
    for call in (*model.calls(*_TELLS), *_logs(model), *_by_accelerate(model)):
        yield call, False
        helper = call.function
        if helper is None or not _tells_given(model, call, helper):
            continue
        if model.on_every_core(call.node) is not None and _metric(model, call, shards) is not None:
            continue  # told there
        for other in model.callers(helper):
            if model.is_here(other.node) and other.node not in told:
                told[other.node] = None
                yield other, _alone(model, call)


def _tells_given(model: FileModel, call: CallSite, helper: Function) -> bool:
    """Whether what a call tells is a parameter of its function, as it was given."""
    return any(
        isinstance(node, cst.Name)
        and node.value in helper.parameters
        and model.with_parameter(node) is helper
        for argument in call.node.args
        for node in _told(model, argument.value)
    )


def _has_shards(model: FileModel) -> bool:
    """Whether anything in the program gives each core a part of the data."""
    return any(shares(part, call) for part in (model, *model.linked) for call in part.calls())


def _alone(model: FileModel, call: CallSite) -> bool:
    """Whether the master core alone tells it: by a condition, or by what it is told with."""
    if call.name == _MASTER_PRINT or model.master_only(call.node) is not None:
        return True
    return is_accelerator(model, call) or _is_logger_of_accelerate(model, call)


def _is_of_each(model: FileModel, call: CallSite) -> bool:
    """Whether what every core tells is meant to be its own: it says of which core it is.

    Of what is printed or written, that every core does so is another matter (XLA401, XLA406),
    unless a condition chooses the core.
    """
    if says_core(model, [argument.value for argument in call.node.args]):
        return True
    written = call.name in _WRITES or (call.name is None and call.method == "write")
    return written and model.core_guard(call.node) is None


def _is_logger_of_accelerate(model: FileModel, call: CallSite) -> bool:
    """``logger = get_logger(__name__)`` of Accelerate, which speaks in the main process alone."""
    if call.receiver is None or "main_process_only" in call.keywords:
        return False
    return made_in(model, call.receiver, {"accelerate.logging.get_logger"}) is not None


def _logs(model: FileModel) -> Iterator[CallSite]:
    """``logger.info(...)``, ``writer.add_scalar(...)``, ``file.write(...)``."""
    for call in model.methods(*_LOGS):
        held = dotted_text(call.receiver) if call.receiver is not None else None
        named = held is not None and _LOGGER.search(held) and not is_accelerator(model, call)
        if call.name is None and named:
            yield call
    yield from (call for call in model.methods("write") if call.name is None)  # a file


def _by_accelerate(model: FileModel) -> Iterator[CallSite]:
    """``accelerator.print(...)``, ``accelerator.log({...})``: of the main process."""
    for call in model.methods("print", "log"):
        if call.name is None and is_accelerator(model, call):
            yield call


def _metric(
    model: FileModel, call: CallSite, shards: Shards
) -> tuple[cst.BaseExpression, Loop] | None:
    """What was computed of a shard, of all that a call tells."""
    for argument in call.node.args:
        for node in _told(model, argument.value):
            loop = shards.loop_of(node)
            if loop is not None:
                return node, loop
    return None


def _told(model: FileModel, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The names, attributes and calls whose values are told, each as a whole."""
    if isinstance(node, cst.Call):
        call = model.call(node)
        if call.name in _SHOWS or (call.name is None and call.method in _READS):
            for argument in node.args:
                yield from _told(model, argument.value)
            if call.receiver is not None and call.name is None:
                yield from _told(model, call.receiver)
            return
    if isinstance(node, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
        yield node
    elif not isinstance(node, cst.Lambda):
        for part in children(node):
            yield from _told(model, part)


def _in_lightning(model: FileModel) -> Iterator[Problem]:
    """``self.log("val_loss", loss)`` in an evaluation on several cores, without ``sync_dist``."""
    trainer: CoresOfTrainer | None = None
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
                related=trainer.places(model),
                fix=model.fix(
                    "Log the mean over the cores",
                    model.add_argument(call.node, "sync_dist=True"),
                    safe=False,
                ),
            )


def _sharded_evaluations(model: FileModel) -> Iterator[Loop]:
    """Loops over a loader with a sampler: each core sees a part of the data."""
    for part in (model, *model.linked):
        for maker in part.calls(DATA_LOADER):
            if shares(part, maker):
                yield from loops_over(model, maker)
