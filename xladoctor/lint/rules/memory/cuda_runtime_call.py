"""XLA707: a question to the CUDA runtime in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

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
        if not runs_with_xla(model, call.node):
            continue
        what, instead = _CALLS[call.name or ""]
        name = (call.name or "").removeprefix("torch.")
        yield model.problem(
            call.node,
            f"{name} knows nothing of XLA devices: without a GPU it {what}",
            suggestion=instead,
            fix=_fix(model, call),
        )


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """The same question to XLA, where there is one; memory is counted in other units there."""
    name = (call.name or "").rpartition(".")[2]
    if name == "set_device":
        return model.fix("Leave it out", model.remove_statement(call.node), safe=False)
    new = {"synchronize": "torch_xla.sync", "current_device": "torch_xla.device"}.get(name)
    written = spell(model, call.node, new) if new is not None else None
    if written is None or (call.function is None and model.multi_core):
        return None
    content = f"{written[0]}({'wait=True' if name == 'synchronize' else ''})"
    return model.fix("Ask XLA", model.replace(call.node, content), written[1], safe=False)
