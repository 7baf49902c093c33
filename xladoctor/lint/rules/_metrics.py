"""Metrics of torchmetrics, which the cores bring together when one asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules._cores import ends_the_run
from xladoctor.lint.rules._exact import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard

_PACKAGE, _FUNCTIONS = "torchmetrics.", "torchmetrics.functional."
_GROUP = "torch.distributed.init_process_group"


def computed_by_some(model: FileModel) -> Iterator[tuple[CallSite, Guard]]:
    """``if rank == 0: print(accuracy.compute())`` in programs that join a process group.

    With a process group ``compute`` gathers what each process has counted (torchmetrics 1.9,
    metric.py), once: what it gave is kept until the next update.
    """
    if not any(list(part.calls(_GROUP)) for part in (model, *model.linked)):
        return
    calls = [call for call in model.methods("compute") if _gathers(model, call)]
    for call in calls:
        guard = model.effects.some_cores(call.node)
        if guard is None or (model.on_every_core(call.node) is None and guard.master is None):
            continue
        if ends_the_run(model, guard, call.node) or _asked_before(model, call, calls):
            continue
        yield call, guard


def _gathers(model: FileModel, call: CallSite) -> bool:
    """Whether a metric is one of torchmetrics that is not told to count for itself."""
    value = model.value(call.receiver) if call.receiver is not None else None
    name = (value.type_name if value is not None and value.kind is Kind.OBJECT else None) or ""
    if value is None or not name.startswith(_PACKAGE) or name.startswith(_FUNCTIONS):
        return False
    made = model.call(value.origin) if isinstance(value.origin, cst.Call) else None
    alone = made.keywords.get("sync_on_compute") if made is not None else None
    return alone is None and (made is None or not made.has_star)


def _asked_before(model: FileModel, call: CallSite, calls: list[CallSite]) -> bool:
    """Whether all cores have asked the same metric before: the answer is kept."""
    assert call.receiver is not None
    text = model.tree.text(call.receiver).strip()
    return any(
        other.receiver is not None
        and other.function is call.function
        and model.tree.text(other.receiver).strip() == text
        and model.effects.some_cores(other.node) is None
        and in_order(model, other.node, call.node)
        for other in calls
        if other is not call
    )
