"""Checks for training that is wrong without an error, while simulated cores run.

Each check tells of a fault once for each core and line, as ``on_event("silent", facts)``; what the
facts mean and what to say of them is for ``diagnosis/silent.py``. None changes a graph, reads a
value of the device through the program's own counters, or raises into the program.

``gradients``  a gradient that stops at a collective or a checkpoint, a layer that gets none
``draws``      random numbers of the device that are the same on all cores
``indices``    labels and indices out of range, which XLA accepts
``expanded``   in-place writes to memory that is seen several times (only if ``every`` check is
               asked for: torch.compile does not take watched methods)
``buffers``    statistics of BatchNorm that differ from core to core
``batches``    loaders that give every core the same samples
``augmentation``  samples that every core augments with the same random numbers
``samples``    samples that the cores' samplers give twice, or to nobody
``differences``  operations that give something else than PyTorch does
``updates``    weights of few bits that no update moves
``clipping``   norms by which the cores clip that differ (only if ``every`` check is asked for)
``shards``     a sharded model that is clipped or saved as if each core had all of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...agent.points import STEP
from . import (
    augmentation,
    batches,
    buffers,
    clipping,
    differences,
    draws,
    expanded,
    gradients,
    indices,
    samples,
    shards,
    updates,
)
from .memory import Memory
from .modules import Ran

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...agent.points import Call
    from ..cores import Core
    from ..running import Running


def install(running: Running, *, several: bool, every: bool = False) -> None:
    """Put the checks around their points.

    Args:
        running: The cores that run.
        several: Whether there is more than one core.
        every: Whether to make the checks that cost more, too.
    """
    memory = Memory(running)

    def step(core: Core, _call: Call, proceed: Callable[[], Any]) -> Any:
        memory.of(core).steps += 1
        return proceed()

    ran = Ran(memory)
    if ran.install():
        gradients.install(memory, ran, several=several)
        if several:
            buffers.install(memory, ran)
    indices.install(memory, always=every)
    updates.install(memory)
    differences.install(memory)
    if every:
        expanded.install(memory)
    if several:
        augmentation.install(memory)
        batches.install(memory)
        samples.install(memory)
        draws.install(memory)
        shards.install(memory)
        if every:
            clipping.install(memory)
    # After those that look at the step before it is counted.
    running.around(STEP, step, "checks")
