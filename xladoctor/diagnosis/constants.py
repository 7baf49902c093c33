"""XLA610 constants-sent-in-step: values of the host go to the device one by one in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding

#: CPU tensors and numbers that a graph needs, each sent for itself. U (tensor.cpp).
_METRICS = ("IrValueTensorToXlaData", "TensorToData")


def find(case: Case) -> Iterator[Finding]:
    """At most one; what set-up sends (weights) does not count."""
    for state in case.states:
        name = next((name for name in _METRICS if name in state.metrics), _METRICS[0])
        sent, steps = state.grown(name), state.grown_steps
        if sent is None or not steps:
            total, each = state.samples(name), 1
            if state.live and case.run is not None:
                each = case.run.cores_of_source(state.source) or 1
            set_up = each * limits.SETUP_CONSTANTS
            sent, steps = None if total is None else total - set_up, state.steps
        if state.live and case.run is not None:
            # Marks are counted for all cores of a process, loaders' and evaluations' too.
            steps = case.run.steps_of_source(state.source)
        if sent is None or steps is None or steps < limits.STEADY_STEPS:
            continue
        if sum(state.fallbacks.values()) >= limits.CAUSED_BY_FALLBACKS * sent:
            continue  # these are the results of operations that ran on the CPU, on their way back
        if sent / steps > limits.CONSTANTS_PER_STEP:
            several = case.run is not None and len(case.run.cores) > 1
            of_all = " of all cores together" if several and state.live else ""
            yield finding(
                "XLA610",
                f"{rate(sent / steps)} per step a tensor or number of the host is sent to the "
                f"device for itself ({sent:,} in {plural(steps, 'step')}{of_all})",
                "make constants (masks, positions, weights of losses) once on the device, before "
                "the loop, and bring data through MpDeviceLoader",
                count=sent,
                seconds=state.seconds(name) if state.before is None else None,
                by=state.by,
            )
            return
