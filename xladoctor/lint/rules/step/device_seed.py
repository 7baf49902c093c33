"""XLA313: the seed does not reach the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import LoopKind
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Calls that seed the XLA device's random numbers too.
_SEEDS = ("torch_xla.manual_seed", "torch_xla.core.xla_model.set_rng_state")


@rule("XLA313")
def device_seed(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.manual_seed`` in training files that never seed the device."""
    if not model.is_xla or model.led_by or any(True for _ in model.calls(*_SEEDS)):
        return
    if any(
        call.method == "set_seed" or (call.name or "").endswith("set_seed")
        for call in model.calls()
    ):
        return
    if not any(loop.kind is LoopKind.STEP for loop in model.loops):
        return
    for call in model.calls("torch.manual_seed"):
        yield model.problem(
            call.node,
            "torch.manual_seed seeds the host only: dropout and torch.rand on the XLA device "
            "give different numbers in every run",
            suggestion="add torch_xla.manual_seed(seed), in the function that every core runs",
        )
        return
