"""XLA312: ``torch.utils.checkpoint`` does not know XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_TORCH = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


@rule("XLA312")
def torch_checkpoint(model: FileModel) -> Iterator[Problem]:
    """Find activation checkpointing of torch itself in files for XLA devices."""
    if not model.is_xla:
        return
    for call in model.calls(*_TORCH):
        if model.on_xla(call.node) is not OnXla.YES:
            continue
        yield model.problem(
            call.node,
            "torch.utils.checkpoint looks for the module torch.xla, which does not exist: it "
            "raises an error for tensors on an XLA device",
            suggestion="torch_xla.utils.checkpoint.checkpoint(function, *args), which also keeps "
            "the compiler from undoing the recomputation",
        )
