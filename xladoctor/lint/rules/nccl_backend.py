"""XLA708: a process group for GPUs in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import for_another_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem


@rule("XLA708")
def nccl_backend(model: FileModel) -> Iterator[Problem]:
    """Find ``init_process_group("nccl")`` that no condition guards."""
    if not model.is_xla:
        return
    for call in model.calls("torch.distributed.init_process_group"):
        backend = call.argument(0, "backend")
        if backend is None or model.literal(backend) != "nccl":
            continue
        if not for_another_device(model, call.node):
            yield model.problem(
                call.node,
                "nccl connects GPUs only: without one init_process_group raises ValueError",
                suggestion='init_process_group("xla", init_method="xla://"), in what '
                "torch_xla.launch or torchrun starts",
            )
