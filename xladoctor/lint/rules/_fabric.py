"""What rules about Lightning Fabric share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._lightning import class_of, for_xla, several_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_MADE = ("lightning.fabric.Fabric", "lightning.Fabric")
#: Strategies under which each core holds a part of the weights, whose gradients are reduced with
#: the backward pass.
_SHARDED = frozenset({"XLAFSDPStrategy"})


def fabric_of_cores(model: FileModel) -> CallSite | None:
    """Fabric on several TPU cores that each have the whole model, here or in a linked file."""
    for part in (model, *model.linked):
        for call in part.calls(*_MADE):
            asked = for_xla(part, call)
            sharded = asked is not None and (
                class_of(part, asked) in _SHARDED or part.literal(asked) == "xla_fsdp"
            )
            if asked is not None and not sharded and several_cores(part, call):
                return call
    return None


def clips_of_fabric(model: FileModel) -> Iterator[CallSite]:
    """``fabric.clip_gradients(...)`` by a norm (not by a value, which looks at no gradients)."""
    for call in model.methods("clip_gradients"):
        if call.receiver is None or "max_norm" not in call.keywords:
            continue
        last = (dotted_text(call.receiver) or "").rpartition(".")[2].lower()
        made = model.value(call.receiver).type_name
        if made == know.FABRIC_CLASS or last in know.FABRICS:
            yield call
