"""XLA703: mixed precision for CUDA around code that runs on an XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._exact import chosen_precision
from xladoctor.lint.rules._settled import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_CUDA = frozenset({"torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"})
_ANY = frozenset({"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"})


@rule("XLA703")
def cuda_autocast(model: FileModel) -> Iterator[Problem]:
    """Find autocast contexts for CUDA in files for XLA devices."""
    if not model.is_xla:
        return
    for call in model.calls():
        if not _for_cuda(model, call) or not runs_with_xla(model, call.node):
            continue
        if chosen_precision(model, call.node):
            continue
        enabled = call.keywords.get("enabled")
        if enabled is not None and set(settled(model, enabled)) != {True}:
            continue
        yield model.problem(
            call.node,
            "autocast for CUDA does nothing for operations on an XLA device: they stay in float32",
            suggestion='with torch.autocast("xla", dtype=torch.bfloat16)',
            fix=_fix(model, call),
        )


def _for_cuda(model: FileModel, call: CallSite) -> bool:
    if call.name in _CUDA:
        return True
    device = call.argument(0, "device_type") if call.name in _ANY else None
    return device is not None and model.literal(device) == "cuda"


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """The context for XLA, in bfloat16."""
    torch = model.spelled("torch", call.node)
    known = {"enabled", "dtype", "device_type"}
    if torch is None or call.has_star or set(call.keywords) - known or len(call.positional) > 1:
        return None
    content = f'{torch}.autocast("xla", dtype={torch}.bfloat16)'
    return model.fix("Cast for XLA", model.replace(call.node, content), safe=False)
