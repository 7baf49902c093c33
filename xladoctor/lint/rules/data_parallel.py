"""XLA709: ``nn.DataParallel`` uses one XLA device, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import for_another_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA709")
def data_parallel(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.nn.DataParallel`` in files for XLA devices."""
    if not model.is_xla:
        return
    for call in model.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        if not for_another_device(model, call.node):
            yield model.problem(
                call.node,
                "nn.DataParallel splits batches over GPUs: on XLA the model runs on one device and "
                "the others idle",
                suggestion="start one process per core with torch_xla.launch, or use SPMD",
            )
