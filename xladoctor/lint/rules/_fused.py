"""The fused AdamW that Trainers of transformers take by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules._checkpointing import meant_for_xla
from xladoctor.lint.rules._constants import parsed_classes
from xladoctor.lint.rules._parsed_settings import parsed_settings
from xladoctor.lint.rules._training_arguments import OF_TRANSFORMERS, fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model import FileModel, Problem

FUSED = (
    "without optim= the Trainer takes torch's fused AdamW (transformers since 4.54, with torch 2.8 "
    "and later), which refuses tensors of XLA devices"
)
#: The first torch with which transformers (since July 2025) takes the fused AdamW by itself.
_SINCE = (2, 8)
#: Without a batch size nobody knows what the arguments are for.
_TRAINS = "per_device_train_batch_size"


def takes_fused(model: FileModel, named: AbstractSet[str]) -> bool:
    """Whether a Trainer that is given these arguments takes its optimizer by default."""
    takes_default = "optim" not in named and not _own_optimizer(model)
    return takes_default and model.target >= _SINCE and not model.keeps_old("transformers", "4.54")


def fused_by_dictionaries(model: FileModel) -> Iterator[Problem]:
    """``parser.parse_dict({"per_device_train_batch_size": 8, ...})`` without an optimizer."""
    for parsed in parsed_settings(model):
        value = parsed.named.get(_TRAINS)
        known = value is not None and parsed.whole and takes_fused(model, parsed.named.keys())
        if value is not None and known and meant_for_xla(model, value):
            yield model.problem(
                value, FUSED, suggestion='"optim": "adamw_torch", the same algorithm'
            )


def fused_by_classes(model: FileModel) -> Iterator[Problem]:
    """``class Settings(TrainingArguments)`` with defaults for a run, and none for its optimizer.

    Of those that the command line fills.
    """
    parsed = {*parsed_classes(model)}
    for cls in model.classes if parsed else ():
        named = {*fields(model, cls)}
        if (
            cls in parsed
            and _TRAINS in named
            and any(map(OF_TRANSFORMERS.search, model.library_bases(cls)))
            and takes_fused(model, named)
            and meant_for_xla(model, cls.node)
        ):
            yield model.problem(
                cls.node.name, FUSED, suggestion='optim: str = field(default="adamw_torch")'
            )


def _own_optimizer(model: FileModel) -> bool:
    """Whether a Trainer of the file gets its optimizer in another way."""
    return any("optimizers" in call.keywords for call in model.calls()) or any(
        "create_optimizer" in cls.methods for cls in model.classes
    )
