"""XLA309: ``xm.optimizer_step`` averages the shards of FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP
from xladoctor.lint.rules._sharded import asked, sharded_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_FSDP = (
    "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel",
    "torch_xla.distributed.fsdp.xla_fully_sharded_data_parallel.XlaFullyShardedDataParallel",
)


@rule("XLA309")
def sharded_reduction(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.optimizer_step`` in files whose models are sharded without a condition."""
    wraps = (call for call in model.calls(*_FSDP) if not model.guards(call.node))
    wrap = next((call for call in wraps if model.on_xla(call.node) is not OnXla.NO), None)
    if wrap is None or model.spmd:
        return
    for call in model.calls(OPTIMIZER_STEP):
        if model.guards(call.node) or call.has_star:
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


def _of_another_model(model: FileModel, call: CallSite) -> bool:
    """Whether the optimizer is seen to hold the parameters of a model that is not sharded."""
    optimizer = call.argument(0, "optimizer")
    if not isinstance(optimizer, cst.Name):
        return False
    made = [one.node for one in model.bindings(optimizer.value, optimizer)]
    owners = [
        asked(one.args[0].value, "parameters") if isinstance(one, cst.Call) and one.args else None
        for one in made
    ]
    return bool(owners) and all(
        isinstance(owner, cst.Name)
        and any(one.kind == "assign" for one in model.bindings(owner.value, owner))
        and sharded_at(model, owner) is None
        for owner in owners
    )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    optimizer = call.argument(0, "optimizer")
    if len(call.node.args) != 1 or not isinstance(optimizer, cst.Name | cst.Attribute):
        return None
    written = f"{model.tree.text(optimizer).strip()}.step()"
    return model.fix("Step only", model.replace(call.node, written), safe=True)
