"""XLA309: ``xm.optimizer_step`` averages parts of a model that do not belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla, walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import around
from xladoctor.lint.rules._model_parallel import divided
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._sharded import owners_of, sharded_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_FSDP = (
    "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel",
    "torch_xla.distributed.fsdp.xla_fully_sharded_data_parallel.XlaFullyShardedDataParallel",
)


#: Optimizers that step with the gradients as they are.
_PLAIN = ("torch.optim.", "transformers.", "torch_xla.amp.syncfree.")


@rule("XLA309")
def sharded_reduction(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.optimizer_step`` in files whose models are sharded without a condition."""
    yield from _of_parallel_layers(model)
    wraps = (call for call in model.calls(*_FSDP) if not model.guards(call.node))
    wrap = next((call for call in wraps if model.on_xla(call.node) is not OnXla.NO), None)
    if wrap is None or model.spmd:
        return
    for call in model.calls(OPTIMIZER_STEP):
        if _is_chosen(model, call) or call.has_star:
            continue  # on one of two roads, perhaps the one without FSDP
        if _of_another_model(model, call):
            continue
        yield model.problem(
            call.node,
            "FSDP has reduced the gradients, and each core holds another shard of them: "
            "xm.optimizer_step averages shards that do not belong together",
            suggestion="optimizer.step()",
            related=[model.place(wrap.node, "the model is sharded here")],
            fix=_fix(model, call),
        )


def _of_parallel_layers(model: FileModel) -> Iterator[Problem]:
    """``xm.optimizer_step(optimizer)`` where neuronx_distributed has divided the model.

    Its own optimizers, and those that shard their state, reduce by themselves.
    """
    start = divided(model)
    if start is None or model.spmd or model.guards(start.node):
        return
    for call in model.calls(OPTIMIZER_STEP):
        optimizer = call.argument(0, "optimizer")
        if call.has_star or call.argument(3, "groups") is not None or _is_chosen(model, call):
            continue
        if optimizer is None or not _is_plain(model, optimizer):
            continue
        yield model.problem(
            call.node,
            "the cores hold different parts of the model: xm.optimizer_step averages the gradients "
            "of all cores, also of parts that do not belong together",
            suggestion="step an optimizer of nxd.initialize_parallel_optimizer, or reduce over the "
            "cores with the same part: groups=parallel_state.get_data_parallel_group(as_list=True)",
            related=[model.place(start.node, "the model is divided here")],
        )


def _is_plain(model: FileModel, optimizer: cst.BaseExpression) -> bool:
    """Whether an optimizer is seen to be one that reduces nothing by itself."""
    made: list[cst.CSTNode | None] = [*model.made_of(optimizer)]
    made = made or [model.value(optimizer).origin]
    names = [model.call(one).name if isinstance(one, cst.Call) else None for one in made]
    return bool(names) and all((name or "").startswith(_PLAIN) for name in names)


def _is_chosen(model: FileModel, call: CallSite) -> bool:
    """Whether a condition chooses this step, and does not only count the batches of it.

    Behind ``if not batch: continue`` there is no other road to a step.
    """
    around_it = {*around(model, call.node)}
    return any(
        guard.node in around_it and not (model.holds_step(guard) and _counts(model, guard.test))
        for guard in model.guards(call.node)
    )


def _counts(model: FileModel, test: cst.BaseExpression) -> bool:
    """``(step + 1) % accumulate == 0``, also by a name that was given to it."""
    asked = (test, *model.assigned_to(test))
    return any(isinstance(part, cst.Modulo) for one in asked for part in walk(one))


def _of_another_model(model: FileModel, call: CallSite) -> bool:
    """Whether the optimizer is seen to hold the parameters of a model that is not sharded."""
    owners = owners_of(model, call.argument(0, "optimizer"))
    return bool(owners) and all(
        owner is not None and bool(model.assigned_to(owner)) and sharded_at(model, owner) is None
        for owner in owners
    )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    optimizer = call.argument(0, "optimizer")
    if len(call.node.args) != 1 or not isinstance(optimizer, cst.Name | cst.Attribute):
        return None
    written = f"{model.tree.text(optimizer).strip()}.step()"
    return model.fix("Step only", model.replace(call.node, written), safe=True)
