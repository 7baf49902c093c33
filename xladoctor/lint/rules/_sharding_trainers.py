"""Whether the Trainer of a file shards its model: by its arguments, or by all that start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules._given import given
from xladoctor.lint.rules._training_arguments import ARGUMENTS, makes_own

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: In all values of ``fsdp`` that share the weights out.
_SHARDS = "shard"


def trainer_shards(model: FileModel) -> bool:
    """Whether each core keeps a share of the weights, and gathers the others' for a layer.

    What is gathered is the same on all cores, whatever each of them has drawn (transformers,
    ``Trainer._wrap_model``: XlaFullyShardedDataParallel, or SPMD with ``xla_fsdp_v2``).
    """
    parts = (model, *model.linked)
    if any(part.once(_asks_itself) for part in parts):
        return True
    started = dict(model.started.files)
    ways = {started[part.stem] for part in parts if part.stem in started}
    return ways == {True}


def _asks_itself(model: FileModel) -> bool:
    """``TrainingArguments(fsdp="full_shard", ...)``."""
    return any(_is_sharded(model, call) for call in model.calls())


def _is_sharded(model: FileModel, call: CallSite) -> bool:
    if not ARGUMENTS.search(call.name or "") and not makes_own(model, call):
        return False
    asked = given(model, call).get("fsdp")
    if asked is None:
        return False
    value = model.literal(asked)
    return value is True or (value is not NotImplemented and _SHARDS in repr(value))
