"""XLA710 tensors-kept-alive: each step leaves tensors behind on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

_PAIRS = (("CreateDataHandles", "DestroyDataHandles"), ("CreateXlaTensor", "DestroyXlaTensor"))


def find(case: Case) -> Iterator[Finding]:
    """At most one, from a series: one report cannot tell what is kept from what grows."""
    for state in case.states:
        steps = state.grown_steps
        if steps is None or steps < limits.STEADY_STEPS:
            continue
        for created, destroyed in _PAIRS:
            made, gone = state.grown(created), state.grown(destroyed)
            if made is None or gone is None or state.counter(destroyed) is None:
                continue
            if (made - gone) / steps >= limits.TENSORS_KEPT_PER_STEP:
                yield finding(
                    "XLA710",
                    f"{rate((made - gone) / steps)} per step a tensor stays on the device "
                    f"({made - gone:,} more after {plural(steps, 'step')}): memory grows",
                    "keep no tensors across steps: append loss.detach().cpu() every so often, or a "
                    "number read after the step, and not the loss with its graph",
                    count=made - gone,
                    by=state.by,
                )
                return
