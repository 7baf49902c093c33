"""XLA704: a gradient scaler, which bfloat16 does not need and which reads every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import chosen_precision, for_another_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_SCALERS = tuple(
    f"torch.{name}GradScaler" for name in ("cuda.amp.", "amp.", "cuda.amp.grad_scaler.")
)


@rule("XLA704")
def gradient_scaler(model: FileModel) -> Iterator[Problem]:
    """Find gradient scalers that are on in files with a step loop on XLA devices."""
    if not model.is_xla or not any(loop.kind is LoopKind.STEP for loop in model.loops):
        return
    for call in model.calls(*_SCALERS):
        if "enabled" in call.keywords or call.has_star or for_another_device(model, call.node):
            continue
        if chosen_precision(model, call.node):
            continue
        yield model.problem(
            call.node,
            "a gradient scaler reads on the host in every step whether a gradient overflowed, and "
            "its step() goes past xm.optimizer_step; bfloat16 needs no scaling",
            suggestion="leave it out: loss.backward(), then xm.optimizer_step(optimizer)",
        )
