"""XLA707: a question to the CUDA runtime in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import for_another_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Those that raise or answer for a device that is not there; seeding and emptying caches do not.
_CALLS = {
    "torch.cuda.synchronize": ("raises RuntimeError", "torch_xla.sync(wait=True)"),
    "torch.cuda.set_device": ("raises RuntimeError", "leave it out: each process has its device"),
    "torch.cuda.current_device": ("raises RuntimeError", "torch_xla.device()"),
    "torch.cuda.max_memory_allocated": ("answers 0", "xm.get_memory_info()"),
    "torch.cuda.memory_allocated": ("answers 0", "xm.get_memory_info()"),
}


@rule("XLA707")
def cuda_runtime_call(model: FileModel) -> Iterator[Problem]:
    """Find calls of ``torch.cuda`` that no condition guards and that say nothing of XLA."""
    if not model.is_xla:
        return
    for call in model.calls(*_CALLS):
        if for_another_device(model, call.node):
            continue
        what, instead = _CALLS[call.name or ""]
        name = (call.name or "").removeprefix("torch.")
        yield model.problem(
            call.node,
            f"{name} knows nothing of XLA devices: without a GPU it {what}",
            suggestion=instead,
        )
