"""XLA403: a shuffling ``DistributedSampler`` that is never told the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._loaders import (
    DATA_LOADER,
    SAMPLER,
    bound_name,
    loops_over,
    says_evaluation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem


@rule("XLA403")
def set_epoch_missing(model: FileModel) -> Iterator[Problem]:
    """Find shuffling distributed samplers of training loaders in files that never set the epoch."""
    if not model.is_xla or model.frameworks or any(True for _ in model.methods("set_epoch")):
        return
    epochs = next((loop for loop in model.loops if loop.kind is LoopKind.EPOCH), None)
    if epochs is None:
        return
    for call in model.calls(SAMPLER):
        shuffle = call.argument(3, "shuffle")
        said = True if shuffle is None else model.literal(shuffle)
        if call.has_star or said is False or said is None or not _for_training(model, call):
            continue
        if said is not True and not _trains(model, call):
            continue  # ``shuffle=name == "train"``: only where a step loop goes over it
        yield model.problem(
            call.node,
            "without set_epoch this sampler gives the same order of samples in every epoch",
            suggestion="call sampler.set_epoch(epoch) at the start of every epoch",
            related=[model.place(epochs.node, "the epoch loop")],
            fix=_fix(model, call, epochs),
        )


def _for_training(model: FileModel, sampler: CallSite) -> bool:
    if says_evaluation(model, sampler.node):
        return False
    kinds = _loops(model, sampler)
    if kinds:
        return LoopKind.STEP in kinds
    return "train" in bound_name(model, sampler.node) or not bound_name(model, sampler.node)


def _trains(model: FileModel, sampler: CallSite) -> bool:
    return LoopKind.STEP in _loops(model, sampler)


def _loops(model: FileModel, sampler: CallSite) -> set[LoopKind]:
    """What the loops are for that go over the loaders with a sampler."""
    return {
        loop.kind
        for loader in model.calls(DATA_LOADER)
        if (given := loader.keywords.get("sampler")) is not None
        and model.value(given).origin is sampler.node
        for loop in loops_over(model, loader)
    }


def _fix(model: FileModel, call: CallSite, epochs: Loop) -> Fix | None:
    """Tell the epoch first thing in the loop, if the sampler is a plain name there."""
    loop, parent = epochs.node, model.parent(call.node)
    if (
        not isinstance(loop, cst.For)
        or not isinstance(loop.target, cst.Name)
        or epochs.function is not call.function
        or not isinstance(parent, cst.Assign)
        or not isinstance(parent.targets[0].target, cst.Name)
        or not isinstance(loop.body, cst.IndentedBlock)
        or model.row(call.node) >= model.row(loop)
    ):
        return None
    sampler = parent.targets[0].target.value
    bindings = model.bindings(sampler, call.node)
    around = {guard.node for guard in model.guards(loop)}
    if len(bindings) != 1 or not {guard.node for guard in model.guards(call.node)} <= around:
        return None  # on another road there may be no sampler
    return model.fix(
        "Set the epoch",
        model.insert_before(loop.body.body[0], f"{sampler}.set_epoch({loop.target.value})"),
        safe=False,
    )
