"""Whether activation checkpointing of torch works on XLA devices, and where it may get there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import OnXla

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model import FileModel

#: What a program sets to make torch's own work all the same.
_REPLACED = ("utils.checkpoint.checkpoint", "torch.xla")


def made_to_work(model: FileModel) -> bool:
    """``torch.utils.checkpoint.checkpoint = another`` and ``torch.xla = torch_xla``."""
    return any(
        text.endswith(_REPLACED) for part in (model, *model.linked) for text in part.assigned
    )


def meant_for_xla(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node runs on XLA devices, or may do so in a file that imports torch_xla itself.

    Or where the program starts all cores that come to it.
    """
    runs = model.on_xla(node)
    if runs is OnXla.MAYBE:
        return model.imports_torch_xla or model.on_every_core(node) is not None
    return runs is OnXla.YES
