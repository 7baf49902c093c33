"""Trainers of Lightning that Hydra makes of a program's settings, and what these are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._lightning import TRAINERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_INSTANTIATE = ("hydra.utils.instantiate", "hydra.utils.call")


def set_beside(model: FileModel) -> Iterator[tuple[str, cst.BaseExpression]]:
    """What a program itself gives such a Trainer: names, and where they are given.

    ``config.trainer.resume_from_checkpoint = path`` before, or as a keyword of,
    ``trainer: Trainer = hydra.utils.instantiate(config.trainer, logger=logger)``.
    """
    for call in model.calls(*_INSTANTIATE):
        settings = call.argument(0, "config")
        if settings is None or not _is_trainer(model, call):
            continue
        yield from call.keywords.items()
        written = model.tree.text(settings).strip()
        for line in model.nodes(cst.Assign):
            target = line.targets[0].target
            if (
                isinstance(target, cst.Attribute)
                and model.function_of(line) is call.function
                and model.tree.text(target.value).strip() == written
            ):
                yield target.attr.value, target


def _is_trainer(model: FileModel, call: CallSite) -> bool:
    """Whether what is made is said to be a Trainer of Lightning."""
    line = model.parent(call.node)
    return isinstance(line, cst.AnnAssign) and model.name(line.annotation.annotation) in TRAINERS
