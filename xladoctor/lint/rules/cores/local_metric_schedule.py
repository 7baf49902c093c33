"""XLA419: a scheduler is given a number that differs from core to core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._protocol import reduces_gradients
from xladoctor.lint.rules._reads import snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard, Problem
    from xladoctor.lint.model.file import Place

_WORDS = ("loss", "acc", "metric", "score", "auc", "perplexity", "error")


@rule("XLA419")
def local_metric_schedule(model: FileModel) -> Iterator[Problem]:
    """Find ``scheduler.step(metric)`` with a metric that was not reduced over the cores."""
    if not model.is_xla or model.spmd or model.frameworks or not reduces_gradients(model):
        return  # without a reduction each core trains a model of its own, perhaps on purpose
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
            related.append(model.place(guard.test, "only the master core gets here"))
        yield model.problem(
            call.node,
            f"{snippet(model, metric)} {why}: the cores choose different learning rates, and their "
            "models drift apart",
            suggestion='reduce it first, on all cores: xm.mesh_reduce("metric", metric, mean)',
            related=related,
        )


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
    bindings = model.bindings(metric.value, metric)
    for item in bindings:
        if item.kind != "assign":
            return None
        node = item.node
        assert isinstance(node, cst.BaseExpression)
        guard = model.master_only(node)
        if guard is not None:
            found = guard
        elif model.literal(node) is NotImplemented and not _all_literal(model, node):
            return None  # the other cores get something too
    return found


def _all_literal(model: FileModel, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Tuple) and model.literal(node) is not NotImplemented
