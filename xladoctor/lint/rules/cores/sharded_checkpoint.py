"""XLA437: a checkpoint that holds one core's share of a sharded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._sharded import asked, sharded_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import FileModel, Problem

_SAVE = "torch_xla.core.xla_model.save"


@rule("XLA437")
def sharded_checkpoint(model: FileModel) -> Iterator[Problem]:
    """Find ``xm.save`` of a sharded model's state that only the master writes."""
    for call in model.calls(_SAVE):
        every = call.argument(2, "master_only")
        data = call.argument(0, "data")
        if data is None or call.has_star:
            continue
        if every is not None and model.literal(every) is not True:
            continue
        found = next(_sharded_states(model, data), None)
        if found is None:
            continue
        sharded, origin = found
        yield model.problem(
            call.node,
            f"the state of {model.tree.text(sharded).strip()} is this core's shard, and xm.save "
            "writes that of the master alone",
            suggestion="save on every core: master_only=False, the core's number in the path, "
            "and get_shard_metadata() beside the state",
            related=[model.place(origin, "the model is sharded here")],
        )


def _sharded_states(
    model: FileModel, data: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """The sharded models whose ``state_dict()`` is in what is saved, and where they are sharded."""
    for root in (data, *model.assigned_to(data)):
        for node in walk(root):
            owner = asked(node, "state_dict")
            origin = sharded_at(model, owner) or _has_metadata(root, owner) if owner else None
            if owner is not None and origin is not None:
                yield owner, origin


def _has_metadata(root: cst.BaseExpression, owner: cst.BaseExpression) -> cst.CSTNode | None:
    """``{"model": net.state_dict(), "shards": net.get_shard_metadata()}``: FSDP alone has it."""
    beside = (node for node in walk(root) if same_name(asked(node, "get_shard_metadata"), owner))
    return next(beside, None)
